// What the host hands to the device code, and the list of work that both device kernels share.
//
// Words: G = Hq / Hkv query heads share a KV head. A *tile* is a block of rows of one sequence:
// `tokens_per_tile` consecutive tokens times `heads_per_tile` heads of one KV head; row r of a tile is token
// r / heads_per_tile, head r % heads_per_tile. `heads_per_tile` divides G, so a tile needs one KV head.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/divisor.h"
#include "kernels/cuda/common/kv_rows.h"

namespace attnbench::sm90_prefill {

using hopper::kFar;
using hopper::KvRows;

/// Rows of one sequence that one block computes, for one head tile. Tokens count from the tile's first unless
/// said.
struct alignas(16) WorkItem {
  int32_t q_row;     ///< packed row of q of the first token
  int16_t q_tokens;  ///< tokens, 1..tokens_per_tile
  int16_t expired;   ///< keys of KV block n_begin, from its first on, that no query of the sequence sees
  int32_t diagonal;  ///< key on the diagonal of the first token: its index + len_k - len_q
  int32_t k_len;     ///< keys of the sequence
  int32_t kv_base;   ///< packed: row of its first key; paged: its row of the block table
  int32_t n_begin;   ///< KV blocks of block_n keys that some row sees: [n_begin, n_end), may be empty
  int32_t n_end;
  int32_t head;  ///< head tile, 0 .. num_head_tiles - 1; in the list on the device: the item's group
};

/// `q_tokens` and `expired` as one word, and back: for shuffles and for loads of whole words.
ATTNBENCH_HD inline int32_t pack_tokens(const WorkItem& item) { return item.expired << 16 | item.q_tokens; }
ATTNBENCH_HD inline void unpack_tokens(WorkItem& item, int32_t word) {
  item.q_tokens = static_cast<int16_t>(word & 0xffff);
  item.expired = static_cast<int16_t>(word >> 16);
}

/// WorkItem::expired of a tile whose first token is the sequence's token `first`, with diagonal key
/// `diagonal`. Keys left of the tile's own window that earlier queries see do not count.
ATTNBENCH_HD inline int16_t expired_keys(int32_t first, int32_t diagonal, int32_t reach_left, int32_t n_begin,
                                         int32_t block_n) {
  const int32_t keys = diagonal - first - reach_left - n_begin * block_n;
  return static_cast<int16_t>(keys < 0 ? 0 : keys);
}

/// What the epilogue needs of a WorkItem.
struct TileRows {
  int32_t q_row;
  int32_t q_tokens;
  int32_t head;
};

inline constexpr int kMaxGroups = 64;

/// The list of work, in the workspace; made anew by each launch, on the device. Launches of few sequences use
/// `next_work` only.
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

/// Keys and values worked on together, a part of L2.
struct KvBudget {
  int64_t bytes;
  int32_t token_bytes;  ///< bytes of K and V of one token and KV head
};

/// What the schedule depends on, beside AttentionParams.
struct ScheduleParams {
  int32_t tokens_per_tile;
  int32_t block_n;
  int32_t num_head_tiles;
  int32_t head_tiles_per_kv_head;
  KvBudget kv_budget;
  int32_t first_drawn;  ///< Schedule::next_work at first: the blocks, where their first works are not drawn
  int32_t skip_q_len;   ///< sequences of at most so many queries are none of this kernel's
  int32_t reach_left;   ///< keys visible left of the diagonal
};

/// Most sequences of a launch whose blocks find their work by themselves (few_sequences.cuh).
inline constexpr int kMaxFewSequences = 32;

/// Lengths of the sequences, as in AttentionParams, for launches of few.
struct SeqArrays {
  int32_t batch;  ///< 0: the launch is none of these
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_k;
};

/// Warp of the producers' warpgroup that draws work.
inline constexpr int kSchedulingWarp = 1;

/// By-value parameter of the attention kernel.
struct KernelParams {
  Schedule* schedule;
  SeqArrays sequences;
  KvBudget kv_budget;

  int32_t num_head_tiles;
  int32_t head_tiles_per_kv_head;
  Divisor by_head_tiles_per_kv_head;
  int32_t heads_per_tile;
  int32_t token_factor;  ///< 2^16 / heads_per_tile, rounded up: a row's token is row * token_factor / 2^16
  int32_t tokens_per_tile;
  float tiles_per_token;  ///< its reciprocal
  /// 0: a block's first work is its number. 1: drawn, as all others: for launches whose blocks may find their
  /// multiprocessors taken, and begin late.
  int32_t draw_first;

  KvRows k_rows;
  KvRows v_rows;
  const int32_t* block_table;  ///< null: packed
  int64_t block_table_stride;
  int32_t block_size;
  Divisor by_block_size;
  int32_t box_rows;      ///< keys per copy, a divisor of block_n and of block_size
  int32_t window_shift;  ///< log2 of the KV blocks whose pages a warp holds, one page per lane

  int32_t reach_left;   ///< keys visible left of the diagonal
  int32_t reach_right;  ///< keys visible right of the diagonal, 0 where causal

  float tanh_factor;  ///< softcap: 2 log2(e) softmax_scale / softcap, so that tanh(x) = 1 - 2 / (2^(factor s)
                      ///< + 1)
  float score_factor;  ///< from a raw score (softcap: from its tanh) to a logit in base 2

  int32_t zero;        ///< 0, which the compiler does not know
  const float* sinks;  ///< (Hq), null: none

  void* out;
  int64_t out_stride_token;
  int64_t out_stride_head;
  float* lse;
  int64_t lse_stride_head;
};

}  // namespace attnbench::sm90_prefill
