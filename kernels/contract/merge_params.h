// Parameters of the op merge_states.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/contract/dtype.h"

namespace attnbench {

/// One call of merge_states: it merges N partial states of the same rows, each over a part of the keys, into
/// the state over all keys. With w_s = exp(lse_s) per row and head:
///   O = sum(w_s * O_s) / sum(w_s),  LSE = ln(sum(w_s))
/// The states may be summed in any order.
///
/// A state with LSE = -inf has seen no key. Its weight is 0, and its O must not reach the output, even if it
/// is NaN. If all states are such, or a row has no state, O = 0 and LSE = -inf. With kInfLse a state with LSE =
/// +inf has seen no key either, and the output still has -inf.
///
/// With kLseBase2 partial_lse and out_lse are logarithms to base 2: w_s = 2^lse_s, LSE = log2(sum(w_s)).
struct MergeStatesParams {
  /// The bit of dtype_partial, kBf16, kFp16 or kFp32, and any of kLseBase2, kLseTokenMajor, kRaggedStates,
  /// kInfLse and kE4m3Out (attention_params.h).
  uint64_t features;

  int32_t num_states;   ///< N, 1 or more; with kRaggedStates the most states of a row
  int32_t num_heads;    ///< H
  int32_t head_dim;     ///< channels of O, 1..1024
  DType dtype_partial;  ///< bf16, fp16 or fp32
  DType dtype_out;      ///< bf16, fp16 or fp32; e4m3 with kE4m3Out
  int32_t reserved;     ///< 0; fills the gap
  int64_t num_rows;     ///< T

  // State s, row t, head h is at s * stride_state + t * stride_token + h * stride_head. Strides are in
  // elements; the stride of a channel is 1. With kRaggedStates row t has the states state_indptr[t] up to, not
  // including, state_indptr[t + 1] of one list. State n of the list, head h is then at n * stride_state + h *
  // stride_head, and stride_token is 0.
  const int32_t* state_indptr;  ///< (T + 1), [0] = 0; kRaggedStates only
  int64_t total_states;         ///< state_indptr[T]; kRaggedStates only
  const void* partial_out;      ///< (N, T, H, head_dim) or (total_states, H, head_dim)
  int64_t partial_stride_state;
  int64_t partial_stride_token;
  int64_t partial_stride_head;
  const float* partial_lse;  ///< (N, T, H) or (total_states, H); the strides may be in any order
  int64_t lse_stride_state;
  int64_t lse_stride_token;
  int64_t lse_stride_head;

  void* out;  ///< (T, H, head_dim)
  /// (1), kE4m3Out: O / out_scale is rounded to e4m3, saturating.
  const float* out_scale;
  int64_t out_stride_token;
  int64_t out_stride_head;
  // Row t, head h is at h * out_lse_stride_head + t; with kLseTokenMajor at t * out_lse_stride_token + h.
  float* out_lse;  ///< (H, T) or, with kLseTokenMajor, (T, H); never null
  int64_t out_lse_stride_head;
  int64_t out_lse_stride_token;
};

static_assert(std::is_standard_layout_v<MergeStatesParams> &&
              std::is_trivially_copyable_v<MergeStatesParams>);

}  // namespace attnbench
