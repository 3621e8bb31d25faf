// Parameters of the op attention_backward.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/contract/dtype.h"

namespace attnbench {

/// One call of attention_backward: the gradients of a loss with respect to q, K, V and the sinks, from its
/// gradient dO with respect to the output of attention.
///
/// Names and the rules of masks and scores are those of attention_params.h. Queries, keys and values are
/// packed; a dense batch (B, S, H, D) is a packed one with equal lengths. With i a query, j a visible key, h a
/// query head that reads KV head g, and keep = 1 / (1 - p_dropout) or 0 by dropout_keeps (dropout.h; 1 without
/// dropout):
///   t_ij = softmax_scale * q_i.k_j          s_ij = softcap * tanh(t_ij / softcap), or t_ij, minus the ALiBi term
///   P_ij = exp(s_ij - LSE_i)                dP_ij = keep_ij * dO_i.v_j          delta_i = O_i.dO_i
///   dS_ij = P_ij * (dP_ij - delta_i) * (1 - tanh(t_ij / softcap)^2)             without softcap the last factor is 1
///   dq_i = softmax_scale * sum_j dS_ij k_j
///   dk_j = softmax_scale * sum_i,h dS_ij q_i                                    over the query heads h of g
///   dv_j = sum_i,h keep_ij * P_ij * dO_i
///   dsinks_h = -sum_i exp(sink_h - LSE_i) * delta_i                             over all queries of the batch
///
/// `out` and `lse` are those of a forward pass on the same inputs: its sums are float32, and `out` is rounded
/// once to `dtype`. All rows of a sequence hold numbers. Rows of no sequence may hold NaN, and a kernel must not
/// multiply them by zero.
struct AttentionBackwardParams {
  uint64_t features;  ///< OR of Feature (attention_params.h): kPackedKv, the bit of `dtype`, and those in use

  int32_t batch;         ///< B, 0 is allowed
  int32_t num_heads_q;   ///< Hq
  int32_t num_heads_kv;  ///< Hkv; divides Hq
  int32_t head_dim;      ///< D of q, K, dq and dk, 1..256
  int32_t head_dim_v;    ///< Dv of V, O, dO and dv, 1..256; equals D unless kHeadDimV is set
  DType dtype;           ///< of all tensors but lse and dsinks: bf16, fp16 or fp32
  int64_t total_q;       ///< rows of q, O, dO and dq: cu_seqlens_q[B]
  int64_t total_k;       ///< rows of K, V, dk and dv: cu_seqlens_k[B]
  int32_t max_seqlen_q;  ///< longest query length, in tokens
  int32_t max_seqlen_k;  ///< longest key length, in tokens

  // Row cu_seqlens_q[b] + i holds query i of sequence b, row cu_seqlens_k[b] + j its key j.
  const int32_t* cu_seqlens_q;  ///< (B + 1), [0] may be other than 0
  const int32_t* cu_seqlens_k;  ///< (B + 1), [0] may be other than 0

  // Inputs. Strides are in elements; the stride of a channel is 1.
  const void* q;  ///< (total_q, Hq, D)
  int64_t q_stride_token;
  int64_t q_stride_head;
  const void* k;  ///< (total_k, Hkv, D)
  int64_t k_stride_token;
  int64_t k_stride_head;
  const void* v;  ///< (total_k, Hkv, Dv)
  int64_t v_stride_token;
  int64_t v_stride_head;
  const void* out;  ///< (total_q, Hq, Dv): O of the forward pass; 0 in a row that sees no key
  int64_t out_stride_token;
  int64_t out_stride_head;
  const float* lse;  ///< (Hq, total_q) natural log; -inf, or the sink, in a row that sees no key
  int64_t lse_stride_head;
  const void* d_out;  ///< (total_q, Hq, Dv): dO, the gradient of the loss with respect to O
  int64_t d_out_stride_token;
  int64_t d_out_stride_head;

  // Mask and scores, as in AttentionParams.
  int32_t causal;
  int32_t window_left;   ///< -1: unlimited
  int32_t window_right;  ///< -1: unlimited
  float softmax_scale;
  float softcap;               ///< 0: none
  int32_t alibi_sqrt;          ///< 1: by the square root of the distance
  const float* alibi_slopes;   ///< (Hq) or (B, Hq); null without kAlibi
  int64_t alibi_stride_batch;  ///< 0: all sequences share the slopes
  const float* sinks;          ///< (Hq); null without kSinks
  float p_dropout;             ///< [0, 1); 0 without kDropout
  uint32_t reserved;           ///< 0; fills the gap
  uint64_t dropout_seed;
  uint64_t dropout_offset;

  // Outputs, in `dtype`. A query that sees no key gets dq = 0, and a key that no query sees gets dk = dv = 0.
  // Rows of no sequence need not be written.
  void* dq;  ///< (total_q, Hq, D)
  int64_t dq_stride_token;
  int64_t dq_stride_head;
  void* dk;  ///< (total_k, Hkv, D)
  int64_t dk_stride_token;
  int64_t dk_stride_head;
  void* dv;  ///< (total_k, Hkv, Dv)
  int64_t dv_stride_token;
  int64_t dv_stride_head;
  float* dsinks;  ///< (Hq); null without kSinks
};

static_assert(std::is_standard_layout_v<AttentionBackwardParams> &&
              std::is_trivially_copyable_v<AttentionBackwardParams>);

}  // namespace attnbench
