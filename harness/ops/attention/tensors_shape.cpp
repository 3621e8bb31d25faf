#include "harness/ops/attention/tensors_parts.h"

#include <algorithm>

#include "harness/config/keys.h"
#include "harness/ops/attention/tensors_key_lists.h"

namespace attnbench::ops::attention {
namespace {

void set_types(const CaseParams& p, AttentionParams& a) {
  a.num_heads_q = p.num_heads_q;
  a.num_heads_kv = p.num_heads_kv;
  a.head_dim = p.head_dim;
  a.head_dim_v = p.dim_v();
  a.dtype_q = p.type_of_q();
  a.dtype_k = p.type_of_k();
  a.dtype_v = p.type_of_v();
  a.dtype_k_new = p.type_of_new(false);
  a.dtype_v_new = p.type_of_new(true);
  a.dtype_out = p.type_of_out();
}

void set_descale_strides(const CaseParams& p, bool padded, AttentionParams& a) {
  set_strides(descale_strides(p, Tensor::kQ, padded), a.q_descale_stride_outer, a.q_descale_stride_head);
  set_strides(descale_strides(p, Tensor::kK, padded), a.k_descale_stride_outer, a.k_descale_stride_head);
  set_strides(descale_strides(p, Tensor::kV, padded), a.v_descale_stride_outer, a.v_descale_stride_head);
  if (p.row_descales(false)) {
    set_strides(row_scale_strides(p, false, padded), a.k_descale_stride_block, a.k_descale_stride_outer,
                a.k_descale_stride_head);
  }
  if (a.features & kDescaleRows) {
    a.q_descale_rows = p.q_descale_rows;
    a.k_descale_rows = p.k_descale_rows;
  }
  if (p.row_descales(true)) {
    set_strides(row_scale_strides(p, true, padded), a.v_descale_stride_block, a.v_descale_stride_outer,
                a.v_descale_stride_head);
  }
}

void set_block_scales(const CaseParams& p, bool padded, AttentionParams& a) {
  if (p.scale_block() == 0) return;
  a.scale_block = p.scale_block();
  a.dtype_block_scale = p.type_of_block_scale();
  set_strides(block_scale_strides(p, false, padded), a.k_block_scale_stride_block,
              a.k_block_scale_stride_token, a.k_block_scale_stride_head);
  set_strides(block_scale_strides(p, true, padded), a.v_block_scale_stride_block,
              a.v_block_scale_stride_token, a.v_block_scale_stride_head);
  if (p.k_tail() == 0) return;
  a.k_tail_stride_block = a.k_stride_block / 2;
  a.k_tail_stride_token = a.k_stride_token / 2;
  a.k_tail_stride_head = a.k_stride_head / 2;
}

void set_tensor_strides(const CaseParams& p, bool padded, AttentionParams& a) {
  set_strides(token_strides(p.num_heads_q, p.head_dim, pad_if(padded, Pad::kQ)), a.q_stride_token,
              a.q_stride_head);
  if (p.qv) {
    set_strides(token_strides(p.num_heads_q, p.dim_v(), pad_if(padded, Pad::kQv)), a.qv_stride_token,
                a.qv_stride_head);
  }
  set_strides(token_strides(p.num_heads_q, p.dim_v(), pad_if(padded, Pad::kOut)), a.out_stride_token,
              a.out_stride_head);
  const KvStrides k = kv_strides(p, false, padded);
  a.k_stride_block = k.block;
  a.k_stride_token = k.token;
  a.k_stride_head = k.head;
  set_strides(kv_strides(p, true, padded), a.v_stride_block, a.v_stride_token, a.v_stride_head);
  a.block_size = p.kv == KvSource::kPaged ? p.block_size : 0;
  a.shared_prefix = p.path == Path::kOneCall ? p.shared_tokens() : 0;
  a.cache_capacity = p.kv == KvSource::kContiguous ? k.rows : 0;
  set_strides(token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewK)), a.k_new_stride_token,
              a.k_new_stride_head);
  set_strides(token_strides(p.num_heads_kv, p.head_dim, pad_if(padded, Pad::kNewV)), a.v_new_stride_token,
              a.v_new_stride_head);
}

/// Lengths, and the strides that follow from them.
void set_lengths(const CaseParams& p, bool padded, AttentionParams& a) {
  a.batch = static_cast<int32_t>(p.seqs.size());
  for (const SeqLen& len : p.seqs) {
    a.max_seqlen_q = std::max(a.max_seqlen_q, len.q);
    a.max_seqlen_k = std::max(a.max_seqlen_k, len.k);
    a.total_new += p.new_len(len);
  }
  a.total_q = packed_q_begins(p).back();
  a.lse_stride_head = a.total_q + (padded ? kPadRow : 0);
  a.lse_stride_token = token_major_stride(p, padded);
  a.probs_stride_token = a.max_seqlen_k + (padded ? kPadRow : 0);
  a.probs_stride_head = a.total_q * a.probs_stride_token;
}

}  // namespace

AttentionParams shape_of(const Case& item, bool padded) {
  const CaseParams& p = item.params;
  AttentionParams a{};
  a.features = features_of(p);
  set_types(p, a);
  set_descale_strides(p, padded, a);
  set_tensor_strides(p, padded, a);
  set_block_scales(p, padded, a);
  set_lengths(p, padded, a);
  a.rotary = rotary_shape(p);
  a.causal = p.causal ? 1 : 0;
  a.window_left = p.window_left;
  a.window_right = p.window_right;
  a.attention_chunk = p.attention_chunk;
  a.topk = p.topk;
  if (p.topk > 0) {
    set_strides(key_list_strides(p, padded), a.topk_stride_token, a.topk_stride_head);
  }
  a.softmax_scale = softmax_scale_of(p);
  a.softcap = static_cast<float>(p.softcap);
  a.num_splits = p.num_splits;
  a.alibi_stride_batch = p.alibi == Alibi::kPerSequence ? p.num_heads_q + (padded ? kPadRow : 0) : 0;
  a.alibi_sqrt = p.alibi_sqrt ? 1 : 0;
  if (p.dropout > 0) {
    a.p_dropout = static_cast<float>(p.dropout);
    a.dropout_seed = item.seed;
    a.dropout_offset = kDropoutOffset;
  }
  return a;
}

}  // namespace attnbench::ops::attention
