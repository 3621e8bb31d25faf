// The keys that a query sees: every mask of the contract gives one half-open interval of keys per query.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// Keys [begin, end), with 0 <= begin <= end <= k_len. begin == end if no key is visible.
struct KeyBounds {
  int32_t begin;
  int32_t end;
};

/// Params is AttentionParams or AttentionBackwardParams, whose masks are the same.
///
/// The smallest range that holds every key visible to a query of [first_i, last_i]. Query indices count from
/// the start of the sequence; first_i <= last_i.
///
/// Both edges of the mask move right by one key per query. So the first query sets the left edge and the last
/// query the right one. Sums are 64-bit because a window may be as large as INT32_MAX.
template <class Params>
ATTNBENCH_HD inline KeyBounds visible_keys_of_rows(const Params& p, int32_t first_i, int32_t last_i,
                                                   int32_t q_len, int32_t k_len) {
  const int64_t shift = static_cast<int64_t>(k_len) - q_len;  // diagonal of query i: key i + shift
  const int64_t right = p.causal ? 0 : p.window_right;
  int64_t begin = 0;
  int64_t end = k_len;
  if (p.window_left >= 0) {
    const int64_t edge = first_i + shift - p.window_left;
    if (edge > begin) begin = edge;
  }
  if (right >= 0) {
    const int64_t edge = last_i + shift + right + 1;
    if (edge < end) end = edge;
  }
  if (begin >= end) return {0, 0};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

/// The keys that query `i` of a sequence sees. Requires 0 <= i < q_len.
template <class Params>
ATTNBENCH_HD inline KeyBounds visible_keys(const Params& p, int32_t i, int32_t q_len, int32_t k_len) {
  return visible_keys_of_rows(p, i, i, q_len, k_len);
}

/// Queries [begin, end) of a sequence; begin == end: none.
struct RowBounds {
  int32_t begin;
  int32_t end;
};

/// The smallest range that holds every query which sees a key of [first_j, last_j]. Requires 0 <= first_j <=
/// last_j < k_len. Both edges of the mask move right by one query per key.
template <class Params>
ATTNBENCH_HD inline RowBounds rows_that_see(const Params& p, int32_t first_j, int32_t last_j, int32_t q_len,
                                            int32_t k_len) {
  const int64_t shift = static_cast<int64_t>(k_len) - q_len;
  const int64_t right = p.causal ? 0 : p.window_right;
  int64_t begin = 0;
  int64_t end = q_len;
  if (right >= 0) {
    const int64_t edge = first_j - shift - right;
    if (edge > begin) begin = edge;
  }
  if (p.window_left >= 0) {
    const int64_t edge = last_j - shift + p.window_left + 1;
    if (edge < end) end = edge;
  }
  if (begin >= end) return {0, 0};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

/// Keys that at least one query of a sequence sees: visible_keys_of_rows of all its queries, in a few
/// instructions. The last query's diagonal is the last key, so no mask limits the right side. The window of
/// the first query limits the left side. `window_left` is the contract's; a caller must first reduce a value
/// that would overflow the int32 sum.
ATTNBENCH_HD constexpr KeyBounds visible_keys_of_sequence(int32_t window_left, int32_t q_len, int32_t k_len) {
  if (q_len <= 0 || k_len <= 0) return {0, 0};
  const int32_t edge = k_len - q_len - window_left;
  return {window_left >= 0 && edge > 0 ? edge : 0, k_len};
}

}  // namespace attnbench
