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

/// The key on the first query's diagonal.
int64_t first_diagonal(const Mask& m, int64_t q, int64_t k) { return m.top_left ? 0 : k - q; }

/// Sum over i in [0, n) of clamp(a + i, 0, k), in closed form: a ramp between a flat 0 and a flat k.
int64_t sum_clamped(int64_t a, int64_t n, int64_t k) {
  const int64_t ramp_begin = std::clamp<int64_t>(-a, 0, n);
  const int64_t ramp_end = std::clamp<int64_t>(k - a, ramp_begin, n);
  const int64_t len = ramp_end - ramp_begin;
  return len * (a + ramp_begin) + len * (len - 1) / 2 + (n - ramp_end) * k;
}

/// The pairs of the queries whose diagonals d0 .. d1 - 1 lie in one chunk, keys [lo, hi).
int64_t pairs_in_chunk(const Bounds& b, int64_t d0, int64_t d1, int64_t lo, int64_t hi) {
  const int64_t n = d1 - d0;
  const int64_t ends = b.end ? sum_clamped(d0 + *b.end - lo, n, hi - lo) : n * (hi - lo);
  const int64_t begins = b.begin ? sum_clamped(d0 + *b.begin - lo, n, hi - lo) : 0;
  return ends - begins;
}

/// The same sum over all chunks. Chunks that are whole, and all of whose diagonals are queries, are alike.
int64_t pairs_with_chunks(const Bounds& b, int64_t chunk, int64_t q, int64_t k) {
  const int64_t first = std::max<int64_t>(0, k - q);  // a query before the first key has no chunk
  if (first >= k) return 0;
  const auto pairs_of = [&](int64_t c) {
    const int64_t lo = c * chunk, hi = std::min(k, lo + chunk);
    return pairs_in_chunk(b, std::max(first, lo), hi, lo, hi);
  };
  const int64_t from = first / chunk, to = (k - 1) / chunk;
  if (from == to) return pairs_of(from);
  const int64_t between = to - from - 1;
  return pairs_of(from) + pairs_of(to) + (between > 0 ? between * pairs_of(from + 1) : 0);
}

}  // namespace

KeyRange visible_keys(const Mask& mask, int64_t q, int64_t k, int64_t first, int64_t last) {
  const Bounds b = bounds_of(mask);
  const int64_t off = first_diagonal(mask, q, k);
  const int64_t begin = b.begin ? std::clamp<int64_t>(off + first + *b.begin, 0, k) : 0;
  const int64_t end = b.end ? std::clamp<int64_t>(off + last + *b.end, 0, k) : k;
  if (mask.chunk == 0) return {begin, std::max(begin, end)};
  if (off + last < 0) return {0, 0};  // before the first key, so before the first chunk
  const int64_t first_chunk = std::max<int64_t>(0, off + first) / mask.chunk * mask.chunk;
  const int64_t chunks_end = ((off + last) / mask.chunk + 1) * mask.chunk;
  const int64_t chunk_begin = std::max(begin, first_chunk);
  return {chunk_begin, std::max(chunk_begin, std::min(end, chunks_end))};
}

KeyRange visible_keys_union(const Mask& mask, int64_t q, int64_t k) {
  return q == 0 ? KeyRange{k, k} : visible_keys(mask, q, k, 0, q - 1);
}

int64_t visible_pairs(const Mask& mask, int64_t q, int64_t k) {
  const Bounds b = bounds_of(mask);
  if (mask.chunk > 0) return pairs_with_chunks(b, mask.chunk, q, k);
  const int64_t off = first_diagonal(mask, q, k);
  const int64_t ends = b.end ? sum_clamped(off + *b.end, q, k) : q * k;
  const int64_t begins = b.begin ? sum_clamped(off + *b.begin, q, k) : 0;
  return ends - begins;
}

}  // namespace attnbench
