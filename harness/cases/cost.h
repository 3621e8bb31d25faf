// Arithmetic and bytes that a case needs, from its true lengths; formulas are named so that a report can say
// which one it used.
#pragma once

#include <cstdint>
#include <string>

#include "harness/config/case_params.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

struct CaseCost {
  int64_t total_q = 0;  ///< query tokens (kv_append: new tokens, padding not counted)
  int64_t total_k = 0;  ///< key tokens
  int32_t max_q = 0;
  int32_t max_k = 0;
  double pairs = 0;         ///< visible (query, key) pairs of one head
  double flop = 0;          ///< 2 * Hq * (D + Dv) * pairs; 0 for kv_append; 2 * D per state merged
  double bytes = 0;         ///< least traffic: each visible input read once, each output written once
  double written = 0;       ///< those of `bytes` that are written
  double device_bytes = 0;  ///< memory that the workload allocates
  std::string formula;      ///< of flop; of bytes
};

CaseCost cost_of(const CaseParams& params);

/// FLOP that a launch with such tiles does: whole tiles, wherever some row of them sees some key. 0 where
/// that says nothing: no tile, another op than attention, a path of several launches.
double executed_flop(const CaseParams& params, const Tile& tile);

/// Shape of a contiguous cache: a row per sequence and two that belong to nobody; room for the longest
/// sequence behind its left padding and three tokens more.
constexpr int64_t contiguous_rows(std::size_t batch) { return static_cast<int64_t>(batch) + 2; }
constexpr int64_t contiguous_capacity(int64_t longest_k, int64_t leftpad) { return longest_k + leftpad + 3; }

}  // namespace attnbench
