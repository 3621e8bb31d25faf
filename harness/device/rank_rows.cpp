#include "harness/device/rank_rows.h"

#include <cstring>

namespace attnbench {

void gather_host(const Gathering& g) {
  for (int32_t r = 0; r < g.ranks; ++r) {
    std::memcpy(static_cast<char*>(g.to) + r * g.bytes, g.from[r], static_cast<std::size_t>(g.bytes));
  }
}

void merge_host(const Merging& m) {
  for (int64_t row = 0; row < m.rows; ++row) {
    float weight[kMostRanks];
    for (int32_t s = 0; s < m.states; ++s) weight[s] = m.lse[s][row];
    m.to_lse[row] = weights_of(weight, m.states);
    for (int64_t i = row * m.dim; i < (row + 1) * m.dim; ++i) {
      float sum = 0;
      for (int32_t s = 0; s < m.states; ++s) sum += weighted(weight[s], load_float(m.dtype, m.out[s], i));
      store_float(m.dtype, m.to, i, sum);
    }
  }
}

void correct_host(const Correcting& c) {
  for (int64_t row = 0; row < c.rows; ++row) {
    float weight[kMostRanks];
    for (int32_t s = 0; s < c.ranks; ++s) weight[s] = c.lse[s * c.rows + row];
    c.to_lse[row] = weights_of(weight, c.ranks);
    for (int64_t i = row * c.dim; i < (row + 1) * c.dim; ++i)
      store_float(c.dtype, c.to, i, weighted(weight[c.rank], load_float(c.dtype, c.out, i)));
  }
}

}  // namespace attnbench
