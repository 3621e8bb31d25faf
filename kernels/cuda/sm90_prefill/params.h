// What the host hands to the device code, the list of work that both device kernels share, and the words of
// this folder.
//
// Words: G = Hq / Hkv query heads share a KV head.
//   tile       the query rows that a block computes at a time: `tokens_per_tile` consecutive tokens of one
//              sequence times `heads_per_tile` heads of one KV head. Row r is token r / heads_per_tile, head
//              r % heads_per_tile. `heads_per_tile` divides G, so a tile needs one KV head.
//   head tile  the heads of a tile, numbered 0 .. num_head_tiles - 1
//   KV block   block_n neighbouring keys of a sequence, from a multiple of block_n on. A block of a paged
//              cache is called pool block, or page by its number in a sequence.
//   item       a tile's tokens and keys; each item is computed once for every head tile
//   split      a part of a tile's KV blocks, as a work of its own (split.h)
//   suffix     the keys of a sequence behind those that it shares with all others (cascade.h)
//   work       an item with a head tile: what a block draws at a time
//   group      sequences whose keys and values (of one head or some) fit L2 together
//   section    head tiles that are worked on together (scheduler.cuh)
//   expired    (a key) seen by no query of its sequence, because it lies left of every window
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/divisor.h"
#include "kernels/cuda/common/kv_rows.h"

namespace attnbench::sm90_prefill {

using hopper::kFar;
using hopper::KvRows;

/// The rows of one sequence that one block computes, for one head tile. Tokens count from the tile's first
/// unless said otherwise.
struct alignas(16) WorkItem {
  int32_t q_row;     ///< packed row of q of the first token
  uint8_t q_tokens;  ///< tokens, 1..tokens_per_tile
  uint8_t expired;   ///< keys of KV block n_begin, from its first on, that no query of the sequence sees
  /// 0: the whole tile; kSuffixState: a sequence's suffix; otherwise a split, and its partial state, counted
  /// from 1
  uint16_t state;
  int32_t diagonal;  ///< key on the diagonal of the first token: its index + len_k - len_q
  int32_t k_len;     ///< keys of the sequence
  int32_t kv_base;   ///< row of its first key; paged: its row of the block table (KvBases)
  int32_t n_begin;   ///< KV blocks of block_n keys that some row sees: [n_begin, n_end), may be empty
  int32_t n_end;
  int32_t head;  ///< head tile, 0 .. num_head_tiles - 1; in the list on the device: the item's group
};

inline constexpr uint16_t kSuffixState = 0xffff;

/// `q_tokens`, `expired` and `state` as one word, and back: for shuffles and for loads of whole words.
ATTNBENCH_HD inline uint32_t pack_tokens(const WorkItem& item) {
  return uint32_t{item.state} << 16 | uint32_t{item.expired} << 8 | item.q_tokens;
}
ATTNBENCH_HD inline void unpack_tokens(WorkItem& item, uint32_t word) {
  item.q_tokens = static_cast<uint8_t>(word);
  item.expired = static_cast<uint8_t>(word >> 8);
  item.state = static_cast<uint16_t>(word >> 16);
}

/// WorkItem::expired of a tile whose first token is the sequence's token `first`, with diagonal key
/// `diagonal`. Keys left of the tile's own window that earlier queries see do not count.
ATTNBENCH_HD inline uint8_t expired_keys(int32_t first, int32_t diagonal, int32_t reach_left, int32_t n_begin,
                                         int32_t block_n) {
  const int32_t keys = diagonal - first - reach_left - n_begin * block_n;
  return static_cast<uint8_t>(keys < 0 ? 0 : keys);
}

/// What WorkItem::kv_base follows from.
struct KvBases {
  const int32_t* first_row;  ///< packed: cu_seqlens_k, contiguous: cache_leftpad; null: zeros
  const int32_t* cache_row;  ///< contiguous: cache_batch_idx; null: the sequence's number
  int32_t step;              ///< packed: 0, paged: 1, contiguous: rows from one row of the cache to the next

  ATTNBENCH_HD int32_t of(int32_t b) const {
    return (cache_row != nullptr ? cache_row[b] : b) * step + (first_row != nullptr ? first_row[b] : 0);
  }
};

/// The part of a WorkItem that a consumer keeps until the tile ends.
struct TileRows {
  int32_t q_row;
  int16_t q_tokens;
  uint16_t state;
  int32_t head;
  int32_t n_begin;  ///< the tile's lowest KV block, which is computed last
};

/// A tile with splits, for the kernel that merges them.
struct alignas(16) SplitTile {
  int32_t q_row;  ///< as in WorkItem
  int32_t q_tokens;
  int32_t splits;
  int32_t first_state;  ///< the state of its first keys, counted from 0; those of further keys follow
};

inline constexpr int kMaxGroups = 64;

/// The list of work, in the workspace. Each launch makes it anew on the device. Launches of few sequences use
/// only `next_work`, unless sm90_prefill_fixed splits them.
///
/// Items are ordered by group, and within a group by the number of KV blocks, most first. For the order of
/// heads see scheduler.cuh.
struct alignas(16) Schedule {
  int32_t num_items;
  int32_t num_groups;
  int32_t heads_per_section;            ///< head tiles that are worked on together
  int32_t next_work;                    ///< counter from which blocks draw work
  int32_t group_begin[kMaxGroups + 1];  ///< items of group g: [group_begin[g], group_begin[g + 1])
  int32_t num_split_tiles;              ///< where ScheduleParams::split_tiles is set
  alignas(16) WorkItem items[1];        ///< num_items of them
};

/// How many bytes of keys and values are worked on together: a part of L2.
struct KvBudget {
  int64_t bytes;
  int32_t token_bytes;  ///< bytes of K and V of one token and KV head
};

/// What the schedule depends on, besides AttentionParams.
struct ScheduleParams {
  int32_t tokens_per_tile;
  int32_t block_n;
  int32_t num_head_tiles;
  int32_t head_tiles_per_kv_head;
  KvBudget kv_budget;
  int32_t first_drawn;  ///< Schedule::next_work at first: number of blocks, or 0 if first works are drawn too
  int32_t skip_q_len;   ///< sequences of at most so many queries are left to another kernel
  int32_t reach_left;   ///< keys visible left of the diagonal
  KvBases kv_bases;
  SplitTile* split_tiles;   ///< null: tiles stay whole; else fixed_division() splits them
  int32_t division_tokens;  ///< by which fixed_division() counts tiles
};

/// Most sequences of a launch that `prepare` leaves without a list, and of one whose tiles sm90_prefill splits.
inline constexpr int kMaxFewSequences = 32;

/// Most sequences of a launch without a kernel before it (few_sequences.cuh). With 300 sequences the list is
/// faster.
inline constexpr int kMaxAloneSequences = 128;

/// Lengths of the sequences, as in AttentionParams, for launches without a list.
struct SeqArrays {
  int32_t batch;  ///< 0: the launch takes its work from the list
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_k;
  KvBases kv_bases;
};

/// Descales of e4m3 and int8 inputs, as in AttentionParams, and what leads from a tile to its sequence.
struct DescaleParams {
  const float* q;  ///< null: q is of 16 bits
  const float* k;
  const float* v;
  int64_t q_stride_outer, q_stride_head;
  int64_t k_stride_outer, k_stride_head;
  int64_t v_stride_outer, v_stride_head;
  const int32_t* cu_seqlens_q;
  int32_t batch;
  int64_t k_stride_block;  ///< int8 only
};

/// K or V in memory, for the gathering warps (gather.cuh).
struct GatheredRows {
  const uint8_t* first;  ///< row 0 of the pool's first block, KV head 0
  int32_t block_rows;    ///< as in KvRows
  uint32_t row_bytes;    ///< from one row of the pool to the next
  int64_t head_bytes;    ///< from one KV head to the next
};

/// The scheduling warp, which draws work. It is in the producers' warpgroup.
inline constexpr int kSchedulingWarp = 1;

/// The warp beside it that loads the scales of int8 keys.
inline constexpr int kKeyScaleWarp = 2;

/// Which warp of the producers loads K and V where two others take queries.
inline constexpr int kKvWarp = 2;

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
  float tiles_per_token;  ///< 1 / tokens_per_tile
  /// 0: a block's first work is its number. 1: it is drawn like all others, for launches whose blocks may
  /// find their multiprocessors taken and begin late.
  int32_t draw_first;
  /// 1: no kernel makes a list or sets the counter before this one (draw_and_wrap).
  int32_t alone;

  KvRows k_rows;
  KvRows v_rows;
  const int32_t* block_table;  ///< null: packed
  int64_t block_table_stride;
  int32_t block_size;
  Divisor by_block_size;
  int32_t box_rows;      ///< keys per copy, a divisor of block_n and of block_size
  int32_t window_shift;  ///< log2 of the KV blocks of a window (PagesBefore)

  int32_t reach_left;   ///< keys visible left of the diagonal
  int32_t reach_right;  ///< keys visible right of the diagonal, 0 where causal

  float tanh_factor;  ///< softcap: 2 log2(e) softmax_scale / softcap, so that tanh(x) = 1 - 2 / (2^(factor s)
                      ///< + 1)
  float score_factor;  ///< from a raw score (softcap: from its tanh) to a logit in base 2

  int32_t zero;        ///< 0, which the compiler does not know: Consumer::replace()
  const float* sinks;  ///< (Hq), null: none

  void* out;
  int64_t out_stride_token;
  int64_t out_stride_head;
  float* lse;
  int64_t lse_stride_head;

  /// For instances with Shape::split: partial states, fp32. The sum of weighted values, [state][head
  /// tile][block_m rows][head_dim_v]; and the reference of the weights in base 2 (-inf: the row sees none of the
  /// split's keys) with their sum, [state][head tile][block_m rows].
  float* partial_out;
  float2* partial_sum;
  int32_t multiprocessors;
  const SplitTile* split_tiles;  ///< for instances with Shape::listed: Schedule::num_split_tiles of them

  /// For instances with Shape::cascade. The state of a suffix is a row for each query and head, at suffix_row +
  /// q_row * Hq + head of the partial states.
  int32_t shared_prefix;  ///< as in AttentionParams
  int32_t prefix_step;    ///< the prefix is a multiple of it: of block_n and of block_size
  int64_t suffix_row;

  struct {
    GatheredRows k, v;
  } gathered;  ///< for instances with Shape::gathers, where pages do not consist of groups of 8 rows

  DescaleParams descales;  ///< for instances with Shape::e4m3_kv or Shape::int8_qk
};

/// Token of a tile's row: row / heads_per_tile by multiplication, exact while row * heads_per_tile < 2^16.
ATTNBENCH_HD inline int32_t token_of_row(const KernelParams& p, int32_t row) {
  return static_cast<int32_t>(static_cast<uint32_t>(row * p.token_factor) >> 16);
}

}  // namespace attnbench::sm90_prefill
