#include "harness/cases/visible_keys.h"

#include <algorithm>
#include <optional>

namespace attnbench {
namespace {

/// Visible keys relative to the query's own key: [begin, end). nullopt: no bound on that side.
struct Bounds {
  std::optional<int64_t> begin, end;
};

Bounds bounds_of(const Mask& m) {
  Bounds b;
  if (m.window_left >= 0) b.begin = -m.window_left;
  const int64_t right = m.causal ? 0 : m.window_right;
  if (right >= 0) b.end = right + 1;
  return b;
}

/// Sum over i in [0, n) of clamp(a + i, 0, k), in closed form: a ramp between a flat 0 and a flat k.
int64_t sum_clamped(int64_t a, int64_t n, int64_t k) {
  const int64_t ramp_begin = std::clamp<int64_t>(-a, 0, n);
  const int64_t ramp_end = std::clamp<int64_t>(k - a, ramp_begin, n);
  const int64_t len = ramp_end - ramp_begin;
  return len * (a + ramp_begin) + len * (len - 1) / 2 + (n - ramp_end) * k;
}

}  // namespace

KeyRange visible_keys(const Mask& mask, int64_t q, int64_t k, int64_t first, int64_t last) {
  const Bounds b = bounds_of(mask);
  const int64_t off = k - q;
  const int64_t begin = b.begin ? std::clamp<int64_t>(off + first + *b.begin, 0, k) : 0;
  const int64_t end = b.end ? std::clamp<int64_t>(off + last + *b.end, 0, k) : k;
  return {begin, std::max(begin, end)};
}

KeyRange visible_keys_union(const Mask& mask, int64_t q, int64_t k) {
  return q == 0 ? KeyRange{k, k} : visible_keys(mask, q, k, 0, q - 1);
}

int64_t visible_pairs(const Mask& mask, int64_t q, int64_t k) {
  const Bounds b = bounds_of(mask);
  const int64_t ends = b.end ? sum_clamped(k - q + *b.end, q, k) : q * k;
  const int64_t begins = b.begin ? sum_clamped(k - q + *b.begin, q, k) : 0;
  return ends - begins;
}

}  // namespace attnbench
