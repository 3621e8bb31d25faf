// The physical layout of a case, decided on the host before anything is allocated: offsets, block tables,
// slots, and which logical row each physical row holds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/values/fill.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Rows of poison behind the last packed row: a kernel that reads past cu_seqlens[-1] gets NaN, or a fault if it runs in
/// a process of its own.
inline constexpr int64_t kTailRows = 64;

/// Junk in block_table entries past a sequence's last block and in entries of freed blocks. Engines leave
/// both kinds.
inline constexpr int32_t kJunkBlocks[2] = {0x7ffffff0, -1};

struct WorkloadPlan {
  std::vector<int32_t> cu_seqlens_q;  ///< (B + 1)
  std::vector<int32_t> seqused_q;     ///< (B), with gap_queries only
  std::vector<int32_t> cu_seqlens_k;  ///< (B + 1), packed only
  std::vector<int32_t> seqused_k;     ///< (B), not for packed KV without gaps; dcp: (ranks, B), local lengths
  int64_t total_q = 0;                ///< cu_seqlens_q[B]: rows of q, O and LSE, unused ones included
  int32_t max_seqlen_q = 0;
  int32_t max_seqlen_k = 0;

  /// Paged only: (B, block_table_stride); more rows, unused ones of which are junk, if shuffled. dcp: (ranks, B, block_table_stride); each rank has one of `ranks`
  /// equal parts of the pool, and an id counts from the start of that part. If each rank is a device of its
  /// own, all of this is of one rank.
  std::vector<int32_t> block_table;
  int64_t block_table_stride = 0;
  int32_t num_blocks = 0;  ///< blocks in the pool; contiguous: rows of the cache

  int64_t capacity = 0;                  ///< contiguous only: tokens of a row of the cache
  std::vector<int32_t> cache_batch_idx;  ///< (B), shuffled rows of a contiguous cache or of block_table only
  std::vector<int32_t> cache_leftpad;    ///< (B), with leftpad only

  /// New tokens of kv_append and of `append: in_call`, in sequence order. Padding tokens (kv_append) are at
  /// the end and between sequences.
  std::vector<int32_t> cu_seqlens_new;  ///< (B + 1), `append: in_call` only
  std::vector<int64_t> slot_mapping;    ///< (T), physical KV row of a token; -1: no row
  /// Which (sequence, position) a token is; seq B: padding. (T) for kv_append, (T + kTailRows) for in_call.
  std::vector<RowOwner> token_owners;

  /// kv_move: kv_owners and appended are of the destination. These are the rows of the source; empty if it is the
  /// same pool. merge_states: the rows of partial_out. cu_seqlens_k counts gathered rows.
  std::vector<RowOwner> source_owners;
  std::vector<int64_t> block_pairs;        ///< (pairs, 2): blocks of the source and of the destination
  std::array<int64_t, 2> stale_pair = {};  ///< what stands behind the last of them
  int32_t num_blocks_dst = 0;              ///< blocks of the destination
  std::vector<int32_t> seq_starts;         ///< (B), gather with `starts` only

  std::vector<int32_t> positions;  ///< (T), kv_append: rotary positions; junk for padding

  std::vector<RowOwner> q_owners;   ///< (total_q + kTailRows)
  std::vector<RowOwner> kv_owners;  ///< physical KV rows before the launch; seq -1: poison
  std::vector<RowOwner> appended;   ///< like kv_owners, for rows that the launch writes; seq -1: others
};

/// Another memory layout of a case. It changes no value, so no result may change.
struct LayoutVariant {
  /// Logical sequence whose values each sequence of the case has; empty: sequence b has the values of b.
  std::vector<int32_t> seq_ids;
  /// Logical position of the first key of each sequence; empty: 0.
  std::vector<int32_t> first_keys;
  uint64_t salt = 0;            ///< another one puts pages and cache rows elsewhere
  bool padded_strides = false;  ///< there are gaps between rows, heads and blocks (strides.h)
  int32_t lead_rows = 0;        ///< unused rows before the first sequence: cu_seqlens[0] is not 0
  /// Rows of no sequence hold random numbers in place of poison (kFinitePadding).
  bool finite_padding = false;
  bool at_page_begin = false;  ///< tensors begin where a page does, else they end there (SeenPart)
  int32_t rank = 0;            ///< whose part of the keys lies here, if each rank is a device of its own
  /// attention_backward: the attention kernel that computes the inputs O and LSE.
  const Kernel* forward = nullptr;

  int32_t seq_id(std::size_t b) const { return seq_ids.empty() ? static_cast<int32_t>(b) : seq_ids[b]; }
};

/// `x` as the 32-bit field that `what` names. Throws TooLarge.
int32_t checked_int32(int64_t x, const char* what);

/// Unused rows behind each sequence's queries, (B): gap_queries behind the first, 0 to gap_queries behind the
/// others. They depend on no seed, so that all copies of a case have the same rows.
std::vector<int32_t> query_gaps_of(const CaseParams& p);

/// First row of each sequence's queries in a packed tensor without leading unused rows, and behind them the
/// number of its rows, (B + 1).
std::vector<int64_t> packed_q_begins(const CaseParams& p);

/// The scale that kernels receive, as a float: the case's own, or 1 / sqrt(head_dim); with qv, as FlashAttention 3
/// has it, 1 / sqrt(head_dim + head_dim_v).
float softmax_scale_of(const CaseParams& params);

/// ALiBi slopes of a case, (Hq) or (B, Hq); empty if it has none. A slope is 2^(-8 (h + 1) / Hq), as in
/// O. Press et al. (arXiv 2108.12409). Slopes per sequence are multiplied by 1, 1.5 or 2. With padded
/// strides, kPadRow (strides.h) NaNs follow each row of these.
std::vector<float> alibi_slopes_of(const Case& c, const LayoutVariant& variant = {});

/// Sinks of a case, (Hq), within (-12, 12); empty if the case has none.
std::vector<float> sinks_of(const Case& c);

/// Rotary tables of a case, row-major (positions, dim / 2): cos and sin of position * 10000^(-2 i / dim).
/// There is a row for every position of a key or a query; no rows if the case has no rotary embedding.
struct RotaryTables {
  std::vector<float> cos, sin;
  int32_t positions = 0;
};
RotaryTables rotary_tables_of(const Case& c);

/// Offset from which, with the case's seed, the dropout mask is made. Both halves of its 64 bits are not 0.
inline constexpr uint64_t kDropoutOffset = 0x500000003ull;

/// The sequence whose descales `seq` uses: sequence 0 if sequences of the case share rows, else its own.
inline int32_t descale_seq(const CaseParams& p, int32_t seq) {
  return p.shared_tokens() > 0 || (p.blocks && p.blocks->shared() > 0) ? 0 : seq;
}

/// Plans the rows of queries, and those of K and V before the launch.
void plan_rows(const CaseParams& p, uint64_t seed, const LayoutVariant& variant, WorkloadPlan& plan);

/// Makes the plan, a pure function of its arguments. Throws TooLarge if an offset exceeds its 32-bit field.
WorkloadPlan plan_workload(const Case& c, const LayoutVariant& variant = {});

}  // namespace attnbench
