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

/// What fills block-table entries past a sequence's last block; both are met in the field.
inline constexpr int32_t kJunkBlocks[2] = {0x7ffffff0, -1};

struct WorkloadPlan {
  std::vector<int32_t> cu_seqlens_q;  ///< (B + 1)
  std::vector<int32_t> cu_seqlens_k;  ///< (B + 1), packed only
  std::vector<int32_t> seqused_k;     ///< (B), paged, or packed with gaps
  int64_t total_q = 0;
  int32_t max_seqlen_q = 0;
  int32_t max_seqlen_k = 0;

  std::vector<int32_t> block_table;  ///< (B, block_table_stride), paged only
  int64_t block_table_stride = 0;
  int32_t num_blocks = 0;

  /// kv_append only. Tokens are in sequence order; the padding stands at its end and between sequences.
  std::vector<int64_t> slot_mapping;   ///< (T), -1: skipped
  std::vector<RowOwner> token_owners;  ///< (T), which (sequence, position) a token is; seq -1: padding

  std::vector<RowOwner> q_owners;   ///< (total_q + kTailRows)
  std::vector<RowOwner> kv_owners;  ///< physical KV rows before the launch; seq -1: poison
  std::vector<RowOwner>
      appended;  ///< kv_append only, like kv_owners: rows that the launch writes; seq -1: others
};

/// Deterministic in (case, seed). Throws std::length_error where offsets would not fit their 32-bit fields.
WorkloadPlan plan_workload(const Case& c);

}  // namespace attnbench
