// Counts from which the costs of several ops follow.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "harness/cases/checks.h"

namespace attnbench {

/// How many numbers lie in at least one of the ranges [first, second).
inline int64_t union_size(std::vector<std::pair<int64_t, int64_t>> ranges) {
  std::ranges::sort(ranges);
  int64_t count = 0;
  int64_t end = 0;
  for (const auto& [first, last] : ranges) {
    count += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return count;
}

inline int64_t blocks_of(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

/// Rows, pairs and blocks of all sequences of a case.
struct Tally {
  int64_t pairs = 0;          ///< visible (query, key) pairs of one head
  int64_t interval = 0;       ///< the same without regard to a custom mask
  int64_t heads = 1;          ///< KV heads that `pairs` and `visible` are sums over
  int64_t visible = 0;        ///< KV rows that some query sees; rows of a shared prefix count once
  int64_t blocks = 0;         ///< block_table entries of visible rows, for each sequence
  int64_t added = 0;          ///< new tokens
  int64_t added_visible = 0;  ///< new tokens that some query sees
  int64_t kv_rows = 0;        ///< rows of the cache
};

Tally tally_of(const CaseParams& p, DrawSeed seed);

inline double element_bytes(DType t) { return static_cast<double>(dtype_size(t)); }

/// Rows of the cache that are certainly in its holes (SeenPart::holes).
int64_t hole_rows(const CaseParams& p);

/// Bytes of one cached row of K and V, all heads, with its own scales. If V is a view of K, V takes no bytes.
double kv_row_bytes(const CaseParams& p);

/// Bytes of one row of both rotary tables (sines and cosines).
inline double rotary_row_bytes(const CaseParams& p) { return 4.0 * p.rotary_width(); }

/// Number of positions of the keys that turn and of queries: the rows of the rotary tables that a launch reads.
int64_t new_positions(const CaseParams& p);

/// Number of fp32 scales of K or V that all sequences share.
double shared_scales(const CaseParams& p, bool is_v, DescalesPer usual);

}  // namespace attnbench
