// Ways to compute one attention problem: as one call, or as a plan of several launches.
#pragma once

#include <cstdint>

#include "harness/config/case_params.h"

namespace attnbench {

/// Number of keys that rank `rank` holds of a sequence with `len` keys. Key j lies on rank
/// (j / interleave) % ranks.
constexpr int32_t dcp_local_len(int32_t len, int32_t ranks, int32_t interleave, int32_t rank) {
  const int32_t rounds = len / interleave / ranks;
  const int32_t rest = len - rounds * interleave * ranks - rank * interleave;
  return rounds * interleave + (rest < 0 ? 0 : rest < interleave ? rest : interleave);
}

/// Logical position of local key `i` of a rank.
constexpr int32_t dcp_global_pos(int32_t i, int32_t ranks, int32_t interleave, int32_t rank) {
  return (i / interleave * ranks + rank) * interleave + i % interleave;
}

/// Number of partial states per row that the case's path merges; 0 if a launch writes the output itself.
int32_t merged_states(const CaseParams& params);

/// Number of decodes at the front of the batch under `path: split_decode`. All later sequences have more
/// queries, because no other order is legal.
std::size_t leading_decodes(const CaseParams& params);

/// Blocks that a kv_move of blocks writes for a sequence of `k` keys: its own, and within a pool the last one
/// twice.
int32_t move_copies(const CaseParams& params, int32_t k);

}  // namespace attnbench
