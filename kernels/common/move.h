// The two tensors of a kv_move, and where their rows are: contract/move_params.h, written once.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"
#include "kernels/contract/move_params.h"

namespace attnbench {

/// K or V of a kv_move. Strides are in elements.
struct MovedTensor {
  const char* src;
  DType dtype_src;
  int64_t src_stride_block, src_stride_token, src_stride_head;
  char* dst;
  DType dtype_dst;
  int64_t dst_stride_block, dst_stride_token, dst_stride_head;
  int32_t dim;
  const float* descale;  ///< null: bits are copied

  ATTNBENCH_HD const char* from(int64_t block, int64_t row, int64_t head) const {
    return src + (block * src_stride_block + row * src_stride_token + head * src_stride_head) *
                     static_cast<int64_t>(dtype_size(dtype_src));
  }
  ATTNBENCH_HD char* to(int64_t block, int64_t row, int64_t head) const {
    return dst + (block * dst_stride_block + row * dst_stride_token + head * dst_stride_head) *
                     static_cast<int64_t>(dtype_size(dtype_dst));
  }
};

ATTNBENCH_HD inline MovedTensor moved_k(const KvMoveParams& p) {
  const bool gather = (p.features & kGather) != 0;
  return {static_cast<const char*>(p.k_src),
          p.dtype_k,
          p.k_src_stride_block,
          p.k_src_stride_token,
          p.k_src_stride_head,
          static_cast<char*>(p.k_dst),
          gather ? p.dtype_out : p.dtype_k,
          p.k_dst_stride_block,
          p.k_dst_stride_token,
          p.k_dst_stride_head,
          p.head_dim,
          gather && (p.features & kE4m3Kv) ? p.k_descale : nullptr};
}

ATTNBENCH_HD inline MovedTensor moved_v(const KvMoveParams& p) {
  const bool gather = (p.features & kGather) != 0;
  return {static_cast<const char*>(p.v_src),
          p.dtype_v,
          p.v_src_stride_block,
          p.v_src_stride_token,
          p.v_src_stride_head,
          static_cast<char*>(p.v_dst),
          gather ? p.dtype_out : p.dtype_v,
          p.v_dst_stride_block,
          p.v_dst_stride_token,
          p.v_dst_stride_head,
          p.head_dim_v,
          gather && (p.features & kE4m3Kv) ? p.v_descale : nullptr};
}

/// The sequence whose rows begin at or before packed row `row`, the last of them: 0 <= b < batch. Requires
/// cu_seqlens[0] <= row < cu_seqlens[batch].
ATTNBENCH_HD inline int32_t sequence_of(const int32_t* cu_seqlens, int32_t batch, int64_t row) {
  int32_t first = 0, last = batch - 1;
  while (first < last) {
    const int32_t middle = (first + last + 1) / 2;
    if (cu_seqlens[middle] <= row) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

/// Where row `row` of a gather's packed tensor comes from.
struct GatheredRow {
  int64_t block;
  int64_t row;  ///< in the block
};
ATTNBENCH_HD inline GatheredRow gathered_row(const KvMoveParams& p, int64_t row) {
  const int32_t b = sequence_of(p.cu_seqlens, p.batch, row);
  const int64_t in_sequence = row - p.cu_seqlens[b] + (p.features & kSeqStarts ? p.seq_starts[b] : 0);
  return {p.block_table[b * p.block_table_stride + in_sequence / p.block_size], in_sequence % p.block_size};
}

}  // namespace attnbench
