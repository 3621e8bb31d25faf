// Merges the parts of a row whose keys were split, in the order of the keys.
#include <algorithm>

#include "kernels/cpu/finish.h"
#include "kernels/cpu/paths.h"

namespace attnbench::cpu {

void run_merge(const AttentionParams& p, const Merge& merge, const float* partials) {
  const Task& tile = merge.tile;
  const auto state = [&](int32_t split, int32_t row) {
    return partials + partial_offset(p, tile, merge.head, split, row);
  };
  for (int32_t r = 0; r < tile.rows; ++r) {
    float m = -kInf;
    for (int32_t s = 0; s < tile.splits; ++s) m = std::max(m, state(s, r)[p.head_dim_v]);
    // A split in which the row saw no key has m = -inf, l = 0 and zeros. Its factor is 0, also if all splits
    // are such.
    const float base = m == -kInf ? 0.0f : m;
    float o[kMaxHeadDimV] = {};
    float l = 0.0f;
    for (int32_t s = 0; s < tile.splits; ++s) {
      const float* part = state(s, r);
      const float factor = exp2_float(part[p.head_dim_v] - base);
      for (int32_t d = 0; d < p.head_dim_v; ++d) o[d] += factor * part[d];
      l += factor * part[p.head_dim_v + 1];
    }
    write_row(p, tile, merge.head, r, o, m, l);
  }
}

}  // namespace attnbench::cpu
