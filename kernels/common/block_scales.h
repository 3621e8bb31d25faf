// Numbers of keys and values that have scales for blocks of channels (kBlockScales).
#pragma once

#include <cstdint>

#include "kernels/common/addressing.h"

namespace attnbench {

/// Where a row of K or V of one KV head is, in elements: its numbers, the scales of its blocks, and K's channels in
/// bf16 (kKTail).
struct ScaledRow {
  int64_t numbers;
  int64_t scales;
  int64_t tail;
};

/// The row of KV head `kv_head` for which `offset(stride_block, stride_token)` returns the offset for KV head 0 in a
/// tensor of these strides.
template <class Offset>
ATTNBENCH_HD inline ScaledRow scaled_row(const AttentionParams& p, int32_t kv_head, bool is_v,
                                         const Offset& offset) {
  if (is_v) {
    return {offset(p.v_stride_block, p.v_stride_token) + kv_head * p.v_stride_head,
            offset(p.v_block_scale_stride_block, p.v_block_scale_stride_token) +
                kv_head * p.v_block_scale_stride_head,
            0};
  }
  return {offset(p.k_stride_block, p.k_stride_token) + kv_head * p.k_stride_head,
          offset(p.k_block_scale_stride_block, p.k_block_scale_stride_token) +
              kv_head * p.k_block_scale_stride_head,
          offset(p.k_tail_stride_block, p.k_tail_stride_token) + kv_head * p.k_tail_stride_head};
}

/// Whether channel `c` of a row of K is in k_tail.
ATTNBENCH_HD inline bool in_tail(const AttentionParams& p, bool is_v, int32_t c) {
  return (p.features & kKTail) != 0 && !is_v && c >= p.head_dim_v;
}

/// Scale of block `block` of a row.
ATTNBENCH_HD inline float block_scale_of(const AttentionParams& p, bool is_v, const ScaledRow& row,
                                         int32_t block) {
  return load_float(p.dtype_block_scale, is_v ? p.v_block_scale : p.k_block_scale, row.scales + block);
}

/// Channel `c` of a row: its number times the scale of its block, without the tensor's descale.
ATTNBENCH_HD inline float scaled_channel(const AttentionParams& p, bool is_v, const ScaledRow& row,
                                         int32_t c) {
  if (in_tail(p, is_v, c)) return load_float(DType::kBf16, p.k_tail, row.tail + c - p.head_dim_v);
  const DType type = is_v ? p.dtype_v : p.dtype_k;
  return load_float(type, is_v ? p.v : p.k, row.numbers * numbers_per_element(type) + c) *
         block_scale_of(p, is_v, row, c / p.scale_block);
}

}  // namespace attnbench
