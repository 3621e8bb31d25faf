// The keys that a query sees: the causal mask, windows and chunks give one half-open interval of keys per query. A
// custom mask has a bit for each key of it.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_backward_params.h"
#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// Keys [begin, end), with 0 <= begin <= end <= k_len. begin == end if no key is visible.
struct KeyBounds {
  int32_t begin;
  int32_t end;
};

/// Params is AttentionParams or AttentionBackwardParams, whose masks are the same but for attention_chunk.
///
/// The key on the diagonal of a sequence's first query. 64-bit because a window may be as large as INT32_MAX.
template <class Params>
ATTNBENCH_HD inline int64_t first_diagonal(const Params& p, int32_t q_len, int32_t k_len) {
  return p.features & kTopLeft ? 0 : static_cast<int64_t>(k_len) - q_len;
}

/// The smallest range that holds every key which the causal mask and the window show to a query whose diagonal is within
/// [first, last].
///
/// Both edges of the mask move right by one key per query. So the first query sets the left edge and the last
/// query the right one.
template <class Params>
ATTNBENCH_HD inline KeyBounds window_keys_of_diagonals(const Params& p, int64_t first, int64_t last,
                                                       int32_t k_len) {
  const int64_t right = p.causal ? 0 : p.window_right;
  int64_t begin = 0;
  int64_t end = k_len;
  if (p.window_left >= 0) {
    const int64_t edge = first - p.window_left;
    if (edge > begin) begin = edge;
  }
  if (right >= 0) {
    const int64_t edge = last + right + 1;
    if (edge < end) end = edge;
  }
  if (begin >= end) return {0, 0};
  return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

/// The same for queries [first_i, last_i], which count from the start of the sequence: all visible keys of a launch
/// without kTopLeft and kAttentionChunk.
template <class Params>
ATTNBENCH_HD inline KeyBounds window_keys_of_rows(const Params& p, int32_t first_i, int32_t last_i,
                                                  int32_t q_len, int32_t k_len) {
  const int64_t shift = static_cast<int64_t>(k_len) - q_len;
  return window_keys_of_diagonals(p, first_i + shift, last_i + shift, k_len);
}

/// The same for one query. Requires 0 <= i < q_len.
template <class Params>
ATTNBENCH_HD inline KeyBounds window_keys(const Params& p, int32_t i, int32_t q_len, int32_t k_len) {
  return window_keys_of_rows(p, i, i, q_len, k_len);
}

/// The part of `keys` in the chunks of the diagonals `first` .. `last`. A negative diagonal has no chunk. Both
/// edges of a query's chunk never move left from query to query.
ATTNBENCH_HD inline KeyBounds keys_of_chunks(KeyBounds keys, int32_t chunk, int64_t first, int64_t last) {
  if (last < 0) return {0, 0};
  const int64_t begin = first < 0 ? 0 : first / chunk * chunk;
  const int64_t end = (last / chunk + 1) * chunk;
  if (begin > keys.begin) keys.begin = static_cast<int32_t>(begin);
  if (end < keys.end) keys.end = static_cast<int32_t>(end);
  if (keys.begin >= keys.end) return {0, 0};
  return keys;
}

/// Tokens of a chunk; 0: none. attention_backward has no chunks.
ATTNBENCH_HD inline int32_t chunk_of(const AttentionParams& p) {
  return p.features & kAttentionChunk ? p.attention_chunk : 0;
}
ATTNBENCH_HD constexpr int32_t chunk_of(const AttentionBackwardParams&) { return 0; }

/// The smallest range that holds every key visible to a query of [first_i, last_i].
template <class Params>
ATTNBENCH_HD inline KeyBounds visible_keys_of_rows(const Params& p, int32_t first_i, int32_t last_i,
                                                   int32_t q_len, int32_t k_len) {
  const int64_t shift = first_diagonal(p, q_len, k_len);
  const KeyBounds keys = window_keys_of_diagonals(p, first_i + shift, last_i + shift, k_len);
  const int32_t chunk = chunk_of(p);
  return chunk <= 0 ? keys : keys_of_chunks(keys, chunk, first_i + shift, last_i + shift);
}

/// The keys that query `i` of a sequence sees. Requires 0 <= i < q_len.
template <class Params>
ATTNBENCH_HD inline KeyBounds visible_keys(const Params& p, int32_t i, int32_t q_len, int32_t k_len) {
  return visible_keys_of_rows(p, i, i, q_len, k_len);
}

/// Whether the custom mask shows key `j` to query `i` of sequence `b`. Requires kCustomMask, 0 <= i < q_len, 0 <= j <
/// k_len; the key must be visible by the other masks, too.
ATTNBENCH_HD inline bool mask_bit(const AttentionParams& p, int32_t b, int32_t i, int32_t j, int32_t k_len) {
  const int64_t n = static_cast<int64_t>(i) * k_len + j;
  return (p.custom_mask[p.mask_indptr[b] + n / 8] >> (n % 8) & 1) != 0;
}

/// Queries [begin, end) of a sequence; begin == end: none.
struct RowBounds {
  int32_t begin;
  int32_t end;
};

/// The smallest range that holds every query which sees a key of [first_j, last_j]. Requires 0 <= first_j <=
/// last_j < k_len, and no chunks. Both edges of the mask move right by one query per key.
template <class Params>
ATTNBENCH_HD inline RowBounds rows_that_see(const Params& p, int32_t first_j, int32_t last_j, int32_t q_len,
                                            int32_t k_len) {
  const int64_t shift = first_diagonal(p, q_len, k_len);
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

/// Keys that at least one query of a sequence sees: window_keys_of_rows of all its queries, in a few
/// instructions. The last query's diagonal is the last key, so no mask limits the right side. The window of
/// the first query limits the left side. `window_left` is the contract's; a caller must first reduce a value
/// that would overflow the int32 sum.
ATTNBENCH_HD constexpr KeyBounds visible_keys_of_sequence(int32_t window_left, int32_t q_len, int32_t k_len) {
  if (q_len <= 0 || k_len <= 0) return {0, 0};
  const int32_t edge = k_len - q_len - window_left;
  return {window_left >= 0 && edge > 0 ? edge : 0, k_len};
}

}  // namespace attnbench
