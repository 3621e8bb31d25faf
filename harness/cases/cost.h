// Arithmetic and memory traffic that a case needs, from its true lengths. The formulas are text as well, so
// that a report can show them.
#pragma once

#include <cstdint>
#include <string>

#include "harness/cases/case.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

struct CaseCost {
  int64_t total_q = 0;  ///< query tokens (kv_append: new tokens, padding not counted)
  int64_t total_k = 0;  ///< key tokens
  int32_t max_q = 0;
  int32_t max_k = 0;
  double pairs = 0;  ///< visible (query, key) pairs of one head
  double flop =
      0;  ///< 2 * Hq * (D + Dv) * pairs; kv_append, kv_move: 0; merge_states: 2 * D per state merged;
          ///< attention_backward: Hq * (6 D + 4 Dv) * pairs
  double bytes = 0;         ///< least traffic: each visible input read once, each output written once
  double written = 0;       ///< the part of `bytes` that is written
  double device_bytes = 0;  ///< memory that the workload allocates
  double hole_bytes = 0;    ///< the part of it that a CPU has no memory for (SeenPart::holes)
  double bytes_of(bool holes) const { return device_bytes - (holes ? hole_bytes : 0); }
  std::string formula;  ///< the formulas of flop and bytes: "FLOP; BYTES"
};

/// The cost of a launch of the case, or of all launches of its path. `seed`: of masks that are drawn, which change
/// the cost a little.
CaseCost cost_of(const CaseParams& params, uint64_t seed = 1);
inline CaseCost cost_of(const Case& c) { return cost_of(c.params, c.seed); }
/// An upper bound of the cost, which draws no mask: queries see every key of their intervals. Its device_bytes are exact.
CaseCost most_cost_of(const CaseParams& params);

/// FLOP of a launch that computes whole tiles: every tile counts in which some row sees some key. Returns 0
/// if the tile is unknown, the op is not attention, the path has several launches, or queries have lists of keys.
double executed_flop(const CaseParams& params, const Tile& tile);

/// Shape of a contiguous cache: (rows, capacity, Hkv, D). Two rows belong to no sequence, and every row has
/// space for the left padding, the longest sequence and three tokens more.
constexpr int64_t contiguous_rows(std::size_t batch) { return static_cast<int64_t>(batch) + 2; }
constexpr int64_t contiguous_capacity(int64_t longest_k, int64_t leftpad) { return longest_k + leftpad + 3; }

/// Unused rows before the first key of sequence `b`: at most `leftpad`, and fewer from sequence to sequence.
inline int32_t leftpad_of(const CaseParams& p, std::size_t b) {
  return p.leftpad - static_cast<int32_t>(b % static_cast<std::size_t>(p.leftpad + 1));
}

}  // namespace attnbench
