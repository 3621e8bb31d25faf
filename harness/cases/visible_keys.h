// Which keys a query sees: the only such rule in the harness. The reference and the kernels have their own.
#pragma once

#include <cstdint>

#include "harness/config/case_params.h"

namespace attnbench {

/// Keys [begin, end) of one sequence; begin <= end.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool contains(int64_t key) const { return key >= begin && key < end; }
};

/// A causal mask or a window, -1: no bound on that side; and chunks of so many keys, 0: none.
struct Mask {
  bool causal = false;
  int64_t window_left = -1;
  int64_t window_right = -1;
  int64_t chunk = 0;
  bool top_left = false;  ///< the diagonal begins at the first key, else it ends at the last one
};
inline Mask mask_of(const CaseParams& p) {
  return {p.causal.on, p.window_left, p.window_right, p.attention_chunk, p.causal.top_left};
}
/// Whether queries may see keys with gaps between them (seen_keys.h). This file's rules then give the interval from
/// the first key to the last that a mask could show.
inline bool has_gaps(const CaseParams& p) { return p.custom_mask != CustomMask::kNone || p.topk > 0; }

/// Keys that at least one of the queries `first` .. `last` sees, in a sequence with q queries and k keys. The
/// last query is aligned with the last key (bottom-right), or the first ones are (top_left).
KeyRange visible_keys(const Mask& mask, int64_t q, int64_t k, int64_t first, int64_t last);
/// Keys that query i sees.
inline KeyRange visible_keys(const Mask& mask, int64_t q, int64_t k, int64_t i) {
  return visible_keys(mask, q, k, i, i);
}

/// Keys that at least one query sees; {k, k} if there is no query.
KeyRange visible_keys_union(const Mask& mask, int64_t q, int64_t k);

/// Visible pairs of one sequence and head: sum over queries of the visible keys. Exact, closed form.
int64_t visible_pairs(const Mask& mask, int64_t q, int64_t k);

}  // namespace attnbench
