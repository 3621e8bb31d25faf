// Which keys the rows of a warp see.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cuda/sm90_decode/params.h"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// Keys [begin, end) of a sequence.
struct KeyRange {
  int32_t begin, end;

  /// Whether some of the keys [first, first + count) are not in the range.
  __device__ __forceinline__ bool lacks(int first, int count) const {
    return first < begin || first + count > end;
  }
};

struct SeenKeys {
  KeyRange row[2];  ///< what two rows of a lane see
  KeyRange all;     ///< what all rows of its warp see: tiles inside need no mask

  /// Returns the score if row h sees the key, else -inf. It selects, because a masked score may be NaN.
  __device__ __forceinline__ float masked(float score, int h, int key) const {
    return key >= row[h].begin && key < row[h].end ? score : -INFINITY;
  }
};

/// The keys that rows `row` and row + step see. All lanes of a warp call it.
__device__ __forceinline__ SeenKeys find_seen_keys(const KernelParams& p, const Item& item, int row,
                                                   int step) {
  SeenKeys seen;
  int32_t all_begin = 0, all_end = item.k_len;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    // Rows past the last token, whose results are not used, are treated like the last.
    const int token = max(min(p.by_group.divide(row + h * step), item.q_len - 1), 0);
    const KeyBounds keys = window_keys(p.attention, token, item.q_len, item.k_len);
    seen.row[h] = {keys.begin, keys.end};
    all_begin = max(all_begin, keys.begin);
    all_end = min(all_end, keys.end);
  }
  seen.all = {__reduce_max_sync(~0u, all_begin), __reduce_min_sync(~0u, all_end)};
  return seen;
}

}  // namespace attnbench::sm90_decode
