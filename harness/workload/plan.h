// The physical layout of a case, decided on the host before anything is allocated: offsets, block tables,
// slots, and which logical row each physical row holds.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/values/fill.h"

namespace attnbench {

/// Rows of poison behind the last packed row, so that reading past cu_seqlens[-1] shows.
inline constexpr int64_t kTailRows = 64;

/// What fills block-table entries past a sequence's last block, and of freed ones; both are met in the field.
inline constexpr int32_t kJunkBlocks[2] = {0x7ffffff0, -1};

struct WorkloadPlan {
  std::vector<int32_t> cu_seqlens_q;  ///< (B + 1)
  std::vector<int32_t> cu_seqlens_k;  ///< (B + 1), packed only
  std::vector<int32_t> seqused_k;     ///< (B), paged, or packed with gaps; (ranks, B) local ones with dcp
  int64_t total_q = 0;                ///< cu_seqlens_q[B]: rows of q, O and LSE, leading ones included
  int32_t max_seqlen_q = 0;
  int32_t max_seqlen_k = 0;

  /// (B, block_table_stride), paged only; with dcp (ranks, B, block_table_stride), ids within a rank's pool,
  /// which is one of `ranks` equal parts of the pool.
  std::vector<int32_t> block_table;
  int64_t block_table_stride = 0;
  int32_t num_blocks = 0;  ///< rows of the cache when contiguous

  int64_t capacity = 0;                  ///< contiguous only: tokens of a row of the cache
  std::vector<int32_t> cache_batch_idx;  ///< (B), contiguous and shuffled only
  std::vector<int32_t> cache_leftpad;    ///< (B), contiguous with leftpad only

  /// New tokens, kv_append and append in the call. They are in sequence order; padding (kv_append) stands at
  /// the end and between sequences.
  std::vector<int32_t> cu_seqlens_new;  ///< (B + 1), append in the call only
  std::vector<int64_t> slot_mapping;    ///< (T), physical KV row of a token; -1: skipped
  std::vector<RowOwner> token_owners;   ///< (T), which (sequence, position) a token is; seq B: padding

  std::vector<int32_t> positions;  ///< (T) for the rotary embedding; junk for padding

  std::vector<RowOwner> q_owners;   ///< (total_q + kTailRows)
  std::vector<RowOwner> kv_owners;  ///< physical KV rows before the launch; seq -1: poison, as expired rows
  std::vector<RowOwner> appended;   ///< like kv_owners: rows that the launch writes; seq -1: others
};

/// Another way for a case to lie in memory: no value changes by it, so no result may either.
struct LayoutVariant {
  /// Logical sequence whose values each sequence of the case has; empty: sequence b those of b.
  std::vector<int32_t> seq_ids;
  /// Logical position of the first key of each sequence; empty: 0.
  std::vector<int32_t> first_keys;
  uint64_t salt = 0;            ///< other places for pages and rows of the cache
  bool padded_strides = false;  ///< no row, head or block ends where the next one begins (strides.h)
  int32_t lead_rows = 0;        ///< unused rows before the first sequence's, so that cu_seqlens[0] is not 0

  int32_t seq_id(std::size_t b) const { return seq_ids.empty() ? static_cast<int32_t>(b) : seq_ids[b]; }
};

/// The scale that kernels receive: the case's own, or 1 / sqrt(head_dim), as a float.
float softmax_scale_of(const CaseParams& params);

/// ALiBi slopes of a case, (Hq) or (B, Hq): 2^(-8 (h + 1) / Hq) as O. Press et al. have them (arXiv
/// 2108.12409), times 1, 1.5 or 2 by sequence where they are per sequence, then with padded strides kPadRow
/// (strides.h) NaNs between. Empty where the case has none.
std::vector<float> alibi_slopes_of(const Case& c, const LayoutVariant& variant = {});

/// Sinks of a case, (Hq), within (-12, 12); empty where the case has none.
std::vector<float> sinks_of(const Case& c);

/// Rotary tables of a case, row-major (positions, dim / 2): cos and sin of position * 10000^(-2 i / dim).
/// Rows for every position of a key or a query; empty where the case has no rotary embedding.
struct RotaryTables {
  std::vector<float> cos, sin;
  int32_t positions = 0;
};
RotaryTables rotary_tables_of(const Case& c);

/// What the mask of a case with dropout is made of, beside its seed: both halves of the offset count.
inline constexpr uint64_t kDropoutOffset = 0x500000003ull;

/// The sequence whose descales a sequence has.
inline int32_t descale_seq(const CaseParams& p, int32_t seq) { return p.shared_tokens() > 0 ? 0 : seq; }

/// Deterministic in (case, seed). Throws TooLarge where offsets would not fit their 32-bit fields.
WorkloadPlan plan_workload(const Case& c, const LayoutVariant& variant = {});

}  // namespace attnbench
