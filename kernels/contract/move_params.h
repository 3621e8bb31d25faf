// Parameters of the op kv_move.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/contract/dtype.h"

namespace attnbench {

/// One call of kv_move, which copies what a paged cache of K and V holds. Without kGather it copies blocks to
/// blocks, with kGather rows of sequences to a packed tensor. No other byte of the destination may change, and
/// none of the source.
///
/// Blocks: for each pair i, block block_pairs[i][1] of the destination becomes a copy of block block_pairs[i][0]
/// of the source, all block_size rows of all heads, bit for bit. A source may stand in several pairs, a
/// destination in one. Source and destination may be one pool (copies after a fork): then no destination is a
/// source. In two pools (swapping out and in) both have the same order of token and head.
///
/// Gather: row cu_seqlens[b] + i of the destination becomes row r = seq_starts[b] + i of sequence b, for
/// 0 <= i < cu_seqlens[b + 1] - cu_seqlens[b]. That row lies in block block_table[b][r / block_size] of the
/// source. Rows in e4m3 (kE4m3Kv) become stored * descale, a product in float32, rounded to dtype_out. Other
/// rows are copied bit for bit.
struct KvMoveParams {
  /// kPagedKv, the bit of the case's type (kBf16, kFp16 or kFp32), and any of kHnd, kE4m3Kv, kInt8K, kInt8V,
  /// kHeadDimV, kVIsK, kGather and kSeqStarts (attention_params.h). kVIsK: there is no V, whose pointers are
  /// null and whose fields have no meaning. Gather: not kInt8K and kInt8V.
  uint64_t features;

  int32_t num_heads_kv;    ///< Hkv
  int32_t head_dim;        ///< D of K, 1..576
  int32_t head_dim_v;      ///< Dv of V, 1..512; equals D unless kHeadDimV is set
  int32_t block_size;      ///< tokens per block
  int32_t num_blocks_src;  ///< blocks of the source
  int32_t num_blocks_dst;  ///< blocks of the destination; gather: 0
  DType dtype_k;           ///< of K in the source
  DType dtype_v;           ///< of V in the source
  DType dtype_out;         ///< gather: of the destination, the type of the bit kBf16, kFp16 or kFp32
  int32_t reserved;        ///< 0; fills the gap

  // Pools: row r of block n, head h is at n * stride_block + r * stride_token + h * stride_head. Gathered rows
  // have no stride_block. Strides are in elements; the stride of a channel is 1.
  const void* k_src;
  const void* v_src;
  int64_t k_src_stride_block;
  int64_t k_src_stride_token;
  int64_t k_src_stride_head;
  int64_t v_src_stride_block;
  int64_t v_src_stride_token;
  int64_t v_src_stride_head;
  void* k_dst;  ///< a pool, or (total_k, Hkv, D)
  void* v_dst;  ///< a pool, or (total_k, Hkv, Dv)
  int64_t k_dst_stride_block;
  int64_t k_dst_stride_token;
  int64_t k_dst_stride_head;
  int64_t v_dst_stride_block;
  int64_t v_dst_stride_token;
  int64_t v_dst_stride_head;

  const int64_t* block_pairs;  ///< (num_pairs, 2): source, destination; blocks only
  int64_t num_pairs;

  // Gather only.
  const int32_t* block_table;  ///< (B, block_table_stride); entries after a sequence's last block are junk
  int64_t block_table_stride;
  const int32_t* cu_seqlens;  ///< (B + 1), rows that are gathered; [0] may be other than 0
  const int32_t* seq_starts;  ///< (B), kSeqStarts; null: zeros
  int64_t total_k;            ///< cu_seqlens[B]
  int32_t batch;              ///< B
  int32_t reserved2;          ///< 0; fills the gap
  const float* k_descale;     ///< (1), kE4m3Kv
  const float* v_descale;     ///< (1), kE4m3Kv
};

static_assert(std::is_standard_layout_v<KvMoveParams> && std::is_trivially_copyable_v<KvMoveParams>);

}  // namespace attnbench
