// Where the rows of a sequence are: the address rule of contract/attention_params.h, written once.
//
// Offsets are in elements and 64-bit: a cache of a few GiB has more than 2^31 elements.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// The rows of one sequence: its first query row in the packed tensor, and its lengths in tokens.
struct SeqRange {
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
};

/// Lengths of sequence `b`, 0 <= b < batch, where its queries fill its slot: for kernels that refuse kSequsedQ.
/// Reads cu_seqlens_q and, if it is given, seqused_k; else cu_seqlens_k.
ATTNBENCH_HD inline SeqRange full_slot_range(const AttentionParams& p, int32_t b) {
  const int32_t q_begin = p.cu_seqlens_q[b];
  const int32_t q_len = p.cu_seqlens_q[b + 1] - q_begin;
  const int32_t k_len = p.seqused_k != nullptr ? p.seqused_k[b] : p.cu_seqlens_k[b + 1] - p.cu_seqlens_k[b];
  return {q_begin, q_len, k_len};
}

/// Lengths of sequence `b`, 0 <= b < batch. Reads seqused_q, too, if it is given.
ATTNBENCH_HD inline SeqRange seq_range(const AttentionParams& p, int32_t b) {
  SeqRange range = full_slot_range(p, b);
  if (p.seqused_q != nullptr) range.q_len = p.seqused_q[b];
  return range;
}

/// New tokens of sequence `b` of a launch with kAppend.
ATTNBENCH_HD inline int32_t new_len(const AttentionParams& p, int32_t b) {
  return p.cu_seqlens_new[b + 1] - p.cu_seqlens_new[b];
}

/// Capacity of the cache per sequence, in tokens, left padding included. Not for packed KV.
ATTNBENCH_HD inline int64_t kv_capacity(const AttentionParams& p) {
  return p.features & kPagedKv ? p.block_table_stride * p.block_size : p.cache_capacity;
}

/// Row of block_table or of a contiguous cache that sequence `b` has.
ATTNBENCH_HD inline int32_t cache_row(const AttentionParams& p, int32_t b) {
  return p.cache_batch_idx != nullptr ? p.cache_batch_idx[b] : b;
}

/// Place of row `row` of sequence `b` in its cache, left padding included. Not for packed KV.
ATTNBENCH_HD inline int32_t padded_row(const AttentionParams& p, int32_t b, int32_t row) {
  return p.cache_leftpad != nullptr ? p.cache_leftpad[b] + row : row;
}

/// Entry of block_table for place `padded` of sequence `b`.
ATTNBENCH_HD inline int64_t table_entry(const AttentionParams& p, int32_t b, int32_t padded) {
  return cache_row(p, b) * p.block_table_stride + padded / p.block_size;
}

/// Element offset of row `row` of sequence `b` for KV head 0, from the strides of one tensor. The caller adds
/// head * stride_head. Requires 0 <= row < k_len, because a block table is not read past a sequence's last
/// block.
ATTNBENCH_HD inline int64_t kv_row_offset(const AttentionParams& p, int32_t b, int32_t row,
                                          int64_t stride_block, int64_t stride_token) {
  if (p.features & kPagedKv) {
    const int32_t padded = padded_row(p, b, row);
    return p.block_table[table_entry(p, b, padded)] * stride_block + (padded % p.block_size) * stride_token;
  }
  if (p.features & kContiguousKv) {
    return int64_t{cache_row(p, b)} * stride_block + int64_t{padded_row(p, b, row)} * stride_token;
  }
  return (static_cast<int64_t>(p.cu_seqlens_k[b]) + row) * stride_token;
}

/// Element offset of K row `row` of sequence `b`, KV head 0.
ATTNBENCH_HD inline int64_t k_row_offset(const AttentionParams& p, int32_t b, int32_t row) {
  return kv_row_offset(p, b, row, p.k_stride_block, p.k_stride_token);
}

/// Element offset of V row `row` of sequence `b`, KV head 0.
ATTNBENCH_HD inline int64_t v_row_offset(const AttentionParams& p, int32_t b, int32_t row) {
  return kv_row_offset(p, b, row, p.v_stride_block, p.v_stride_token);
}

/// The list of packed query row `q_row` and KV head `kv_head` (kTopkIndices), and how many of its entries count.
ATTNBENCH_HD inline const int32_t* key_list(const AttentionParams& p, int64_t q_row, int32_t kv_head) {
  return p.topk_indices + q_row * p.topk_stride_token + kv_head * p.topk_stride_head;
}
ATTNBENCH_HD inline int32_t key_list_length(const AttentionParams& p, int64_t q_row) {
  return p.topk_length != nullptr ? p.topk_length[q_row] : p.topk;
}

/// Element offset of the row that an entry of a list names, KV head 0. Requires entry >= 0.
ATTNBENCH_HD inline int64_t listed_row_offset(const AttentionParams& p, int32_t entry, int64_t stride_block,
                                              int64_t stride_token) {
  if (p.features & kPagedKv) {
    return entry / p.block_size * stride_block + (entry % p.block_size) * stride_token;
  }
  return entry * stride_token;
}

/// Element offset of query row `q_row` (of the packed tensor, q_begin included) and query head `head`.
ATTNBENCH_HD inline int64_t q_offset(const AttentionParams& p, int64_t q_row, int32_t head) {
  return q_row * p.q_stride_token + head * p.q_stride_head;
}

/// Element offset in `out` of packed query row `q_row` and query head `head`.
ATTNBENCH_HD inline int64_t out_offset(const AttentionParams& p, int64_t q_row, int32_t head) {
  return q_row * p.out_stride_token + head * p.out_stride_head;
}

/// Element offset in `lse` of packed query row `q_row` and query head `head`. For kernels without
/// kLseTokenMajor.
ATTNBENCH_HD inline int64_t lse_offset(const AttentionParams& p, int64_t q_row, int32_t head) {
  return head * p.lse_stride_head + q_row;
}

/// The same for kernels that take kLseTokenMajor.
ATTNBENCH_HD inline int64_t any_lse_offset(const AttentionParams& p, int64_t q_row, int32_t head) {
  return p.features & kLseTokenMajor ? q_row * p.lse_stride_token + head : lse_offset(p, q_row, head);
}

/// Element offset of cache slot `slot` for KV head 0, from the strides of one cache. Requires slot >= 0.
ATTNBENCH_HD inline int64_t slot_offset(const KvAppendParams& p, int64_t slot, int64_t stride_block,
                                        int64_t stride_token) {
  return slot / p.block_size * stride_block + slot % p.block_size * stride_token;
}

/// Element offset of cache slot `slot` in K, KV head 0.
ATTNBENCH_HD inline int64_t k_slot_offset(const KvAppendParams& p, int64_t slot) {
  return slot_offset(p, slot, p.k_stride_block, p.k_stride_token);
}

/// Element offset of cache slot `slot` in V, KV head 0.
ATTNBENCH_HD inline int64_t v_slot_offset(const KvAppendParams& p, int64_t slot) {
  return slot_offset(p, slot, p.v_stride_block, p.v_stride_token);
}

/// Offset in ScaleParams::given of the scale for channel `c` of KV head `head`.
ATTNBENCH_HD inline int64_t given_scale_offset(const ScaleParams& s, int32_t head, int32_t c) {
  return head * s.given_stride_head + c * s.given_stride_channel;
}

/// Offset in ScaleParams::computed of the scale of slot `slot`, KV head `head`. Requires slot >= 0.
ATTNBENCH_HD inline int64_t scale_slot_offset(const KvAppendParams& p, const ScaleParams& s, int64_t slot,
                                              int32_t head) {
  return slot_offset(p, slot, s.stride_block, s.stride_token) + head * s.stride_head;
}

}  // namespace attnbench
