// What the host hands to the device code, and the list of work that both device kernels share.
//
// Words: G = Hq / Hkv query heads share a KV head. A *tile* is a block of rows of one sequence:
// `tokens_per_tile` consecutive tokens times `heads_per_tile` heads of one KV head; row r of a tile is token
// r / heads_per_tile, head r % heads_per_tile. `heads_per_tile` divides G, so a tile needs one KV head.
#pragma once

#include <cstdint>

namespace attnbench::sm90_prefill {

/// Rows of one sequence that one block computes, for one head tile. Tokens count from the tile's first unless
/// said.
struct alignas(16) WorkItem {
  int32_t q_row;     ///< packed row of q of the first token
  int32_t q_tokens;  ///< tokens, 1..tokens_per_tile
  int32_t diagonal;  ///< key on the diagonal of the first token: its index + len_k - len_q
  int32_t k_len;     ///< keys of the sequence
  int32_t kv_base;   ///< packed: row of its first key; paged: its row of the block table
  int32_t n_begin;   ///< KV blocks of block_n keys that some row sees: [n_begin, n_end), may be empty
  int32_t n_end;
  int32_t head;  ///< head tile, 0 .. num_head_tiles - 1; in the list on the device: the item's group
};

/// What the epilogue needs of a WorkItem.
struct TileRows {
  int32_t q_row;
  int32_t q_tokens;
  int32_t head;
};

inline constexpr int kMaxGroups = 64;

/// The list of work, in the workspace; made anew by each launch, on the device.
///
/// Items are ordered by group, and within a group by the number of KV blocks, most first. A group holds
/// sequences whose keys and values (of one head or some) fit L2 together; see scheduler.cuh for the order of
/// heads.
struct alignas(16) Schedule {
  int32_t num_items;
  int32_t num_groups;
  int32_t heads_per_section;            ///< head tiles that are worked on together
  int32_t next_work;                    ///< counter from which blocks draw work
  int32_t group_begin[kMaxGroups + 1];  ///< items of group g: [group_begin[g], group_begin[g + 1])
  alignas(16) WorkItem items[1];        ///< num_items of them
};

/// What the schedule depends on, beside AttentionParams.
struct ScheduleParams {
  int32_t tokens_per_tile;
  int32_t block_n;
  int32_t num_head_tiles;
  int32_t head_tiles_per_kv_head;
  int32_t kv_token_bytes;   ///< bytes of K and V of one token and KV head
  int64_t kv_budget_bytes;  ///< keys and values worked on together; a part of L2
  int32_t first_drawn;  ///< Schedule::next_work at first: the blocks, where their first works are not drawn
  int32_t skip_q_len;   ///< sequences of at most so many queries are none of this kernel's
};

/// Where rows of K or of V lie, in units of a row (token stride) and of a chunk of 64 channels.
struct KvRows {
  int32_t block_rows;   ///< paged: rows from one block of the pool to the next
  int32_t head_chunks;  ///< chunks from one head to the next
};

/// By-value parameter of the attention kernel.
struct KernelParams {
  Schedule* schedule;

  int32_t num_head_tiles;
  int32_t head_tiles_per_kv_head;
  int32_t heads_per_tile;
  int32_t tokens_per_tile;
  /// 0: a block's first work is its number. 1: drawn, as all others: for launches whose blocks may find their
  /// multiprocessors taken, and begin late.
  int32_t draw_first;

  KvRows k_rows;
  KvRows v_rows;
  const int32_t* block_table;  ///< null: packed
  int64_t block_table_stride;
  int32_t block_size;
  int32_t box_rows;  ///< keys per copy, a divisor of block_n and of block_size
  int32_t kv_warps;  ///< producer warps that issue the copies of K and V, 1..4

  int32_t reach_left;   ///< keys visible left of the diagonal
  int32_t reach_right;  ///< keys visible right of the diagonal, 0 where causal

  float tanh_factor;  ///< softcap: 2 log2(e) softmax_scale / softcap, so that tanh(x) = 1 - 2 / (2^(factor s)
                      ///< + 1)
  float score_factor;  ///< from a raw score (softcap: from its tanh) to a logit in base 2

  const float* sinks;  ///< (Hq), null: none

  void* out;
  int64_t out_stride_token;
  int64_t out_stride_head;
  float* lse;
  int64_t lse_stride_head;
};

}  // namespace attnbench::sm90_prefill
