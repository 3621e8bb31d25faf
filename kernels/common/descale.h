// Descales of quantised inputs: factors of the stored numbers. A descale is 1 if the input is not quantised.
#pragma once

#include <cstdint>

#include "kernels/common/addressing.h"

namespace attnbench {

/// Descale of query head `head` in packed query row `q_row`, which belongs to sequence `b`.
ATTNBENCH_HD inline float q_descale(const AttentionParams& p, int32_t b, int64_t q_row, int32_t head) {
  if (p.features & kInt8Q) {
    if (p.q_descale_rows > 1) q_row = p.cu_q_descales[b] + (q_row - p.cu_seqlens_q[b]) / p.q_descale_rows;
    return p.q_descale[q_row * p.q_descale_stride_outer + head * p.q_descale_stride_head];
  }
  if (!(p.features & kE4m3Q)) return 1.0f;
  const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
  return p.q_descale[b * p.q_descale_stride_outer + kv_head * p.q_descale_stride_head];
}

/// Whether each row of K or V and KV head has a descale of its own.
ATTNBENCH_HD inline bool has_row_descales(const AttentionParams& p, bool is_v) {
  return (p.features & (is_v ? kVTokenScales : kInt8K | kKTokenScales)) != 0;
}

/// Whether the rows of a sequence and KV head share a descale, unless has_row_descales says otherwise. Rows of fp8_ds_mla
/// (kKTail) have scales for blocks alone.
ATTNBENCH_HD inline bool shares_descales(const AttentionParams& p) {
  return (p.features & (kE4m3Kv | kE5m2Kv | kE2m1Kv)) != 0 && !(p.features & kKTail);
}

/// Descale of all keys of sequence `b`, KV head `head`, for e4m3, e5m2 and e2m1; 1 for other types, and if rows have
/// their own.
ATTNBENCH_HD inline float k_descale(const AttentionParams& p, int32_t b, int32_t head) {
  if (!shares_descales(p) || has_row_descales(p, false)) return 1.0f;
  return p.k_descale[b * p.k_descale_stride_outer + head * p.k_descale_stride_head];
}

/// Offset of the descale of row `row` of K, KV head 0.
ATTNBENCH_HD inline int64_t k_descale_offset(const AttentionParams& p, int32_t b, int32_t row) {
  const int64_t block = p.k_descale_stride_block, outer = p.k_descale_stride_outer;
  const int32_t n = p.k_descale_rows;
  if (n <= 1) return kv_row_offset(p, b, row, block, outer);
  if (p.features & kPackedKv) return (static_cast<int64_t>(p.cu_k_descales[b]) + row / n) * outer;
  const int32_t in_block = p.features & kPagedKv ? row % p.block_size : row;
  return kv_row_offset(p, b, row, block, 0) + in_block / n * outer;
}

/// Descale of row `row` of K or V, sequence `b`, KV head `head`; 1 if rows have none of their own. Requires
/// 0 <= row < k_len.
ATTNBENCH_HD inline float row_descale(const AttentionParams& p, bool is_v, int32_t b, int32_t row,
                                      int32_t head) {
  if (!has_row_descales(p, is_v)) return 1.0f;
  return is_v ? p.v_descale[kv_row_offset(p, b, row, p.v_descale_stride_block, p.v_descale_stride_outer) +
                            head * p.v_descale_stride_head]
              : p.k_descale[k_descale_offset(p, b, row) + head * p.k_descale_stride_head];
}

/// Descale of channel `channel` of V in sequence `b`, KV head `head`: per channel for int8, and for e4m3 and e5m2
/// with kVChannelScales; 1 if rows have their own.
ATTNBENCH_HD inline float v_descale(const AttentionParams& p, int32_t b, int32_t head, int32_t channel) {
  if (has_row_descales(p, true)) return 1.0f;
  if (p.features & (kInt8V | kVChannelScales)) return p.v_descale[head * p.v_descale_stride_head + channel];
  if (!shares_descales(p)) return 1.0f;
  return p.v_descale[b * p.v_descale_stride_outer + head * p.v_descale_stride_head];
}

/// Type of new rows of K of a launch with kAppend.
ATTNBENCH_HD inline DType k_new_type(const AttentionParams& p) {
  return p.features & kAppendQuantised ? p.dtype_k_new : p.dtype_k;
}

/// Type of new rows of V of a launch with kAppend.
ATTNBENCH_HD inline DType v_new_type(const AttentionParams& p) {
  return p.features & kAppendQuantised ? p.dtype_v_new : p.dtype_v;
}

/// The number that O is divided by before it is stored.
template <class Params>
ATTNBENCH_HD inline float out_divisor(const Params& p) {
  return p.features & kE4m3Out ? *p.out_scale : 1.0f;
}

}  // namespace attnbench
