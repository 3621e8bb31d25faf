// What the host hands to the device code, and the words of this folder.
//
// Words: G = Hq / Hkv query heads share a KV head.
//   tile      block_m neighbouring queries of a sequence, for one query head
//   item      block_n neighbouring keys of a sequence, for one KV head: a block loops over all tiles that see them
//   padded    Rows of LSE, delta and the sums of dq lie in whole tiles: sequence b begins at tile
//             (cu_seqlens_q[b] + b * block_m) / block_m, which leaves room for all its queries.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/contract/attention_backward_params.h"
#include "kernels/contract/hd.h"

namespace attnbench::sm90_backward {

/// Tensor maps of one launch. A box is a tile, or the keys of an item.
struct Maps {
  CUtensorMap q, d_out, k, v;
};

/// The neighbouring keys of an item, the same for all KV heads. Tiles and keys count from their sequence's first.
struct alignas(16) Keys {
  int32_t q_row, q_len, k_row, k_len;  ///< of the sequence
  int32_t first_key;
  int32_t tile_begin;  ///< tiles [tile_begin, tile_end) see the keys
  int32_t tile_end;
  int32_t tile_base;  ///< padded, of the sequence's first tile
  int32_t diagonal;   ///< the key on the diagonal of query 0
  int32_t kv_head;    ///< as published to the consumers; -1: there are no more items
  int32_t unused[2];
};

/// An item.
struct Work {
  int32_t keys;  ///< number of its Keys
  int32_t kv_head;
};

/// The first words of the workspace.
struct Head {
  uint32_t drawn;  ///< items that blocks have taken; each launch begins with 0
  uint32_t items;
  uint32_t padding[62];
};

/// By-value parameter of the kernels.
struct alignas(64) KernelParams {
  AttentionBackwardParams attention;
  int32_t group;         ///< G
  int32_t padded_tiles;  ///< of one head
  int32_t reach_left;    ///< how far a query sees from its diagonal; kFar: without limit
  int32_t reach_right;
  int64_t section_rows;  ///< rows times heads of the queries that are worked on at once: they fit L2
  int32_t q_head_chunks, k_head_chunks, v_head_chunks, d_out_head_chunks;
  float score_factor;  ///< softmax_scale * log2(e); with a softcap 2 log2(e) softmax_scale / softcap
  float cap_factor;    ///< softcap * log2(e)

  Head* head;
  uint32_t* added;  ///< (2, Hq, padded_tiles): how many items have added their part of dq; null: in any order
  Keys* keys;
  Work* works;  ///< items in the order in which blocks take them
  float* lse2;  ///< (Hq, padded_tiles, block_m) LSE * log2(e); +inf where a row sees no key or does not exist
  float* delta;   ///< likewise; 0 where a row does not exist
  float* dq_sum;  ///< (Hq, padded_tiles, block_m * head_dim), in the order of registers: see dq_part()
};

ATTNBENCH_HD constexpr int first_tile(int32_t cu_seqlens_q, int32_t b, int block_m) {
  return static_cast<int>((static_cast<int64_t>(cu_seqlens_q) + static_cast<int64_t>(b) * block_m) / block_m);
}

}  // namespace attnbench::sm90_backward
