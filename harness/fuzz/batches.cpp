#include "harness/fuzz/batches.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/fuzz/corners.h"

namespace attnbench {
namespace {

constexpr int32_t kMostQueriesOfFew = 17;

/// The longest sequence of a batch: mostly short, sometimes past a page of 1,024 tokens, rarely past 8,192, 16,384 or
/// 65,536: from some thousand keys on, kernels split them.
int32_t draw_longest(Random& random) {
  static const std::vector<int32_t> most = {17,   33,   65,   65,   130,  130,  257,   257,  513,
                                            1025, 1025, 2049, 2049, 4097, 8193, 16385, 65600};
  const int32_t limit = random.pick(most);
  if (random.chance(0.5)) return draw_length_up_to(random, limit);
  return static_cast<int32_t>(limit - random.between(0, 2));  // the corner, or a little less
}

std::size_t draw_count(Random& random) {
  static const std::vector<std::size_t> counts = {1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8, 9, 16, 17, 33, 70, 133};
  return random.pick(counts);
}

/// Key lengths up to `longest`, in patterns that schedules must distinguish.
std::vector<int32_t> draw_keys(Random& random, std::size_t count, int32_t longest) {
  std::vector<int32_t> keys(count, longest);
  switch (random.below(6)) {
    case 0:  // all equal
      break;
    case 1:  // the others one less than the longest
      for (int32_t& k : keys) k = std::max(0, longest - 1);
      keys[random.below(count)] = longest;
      break;
    case 2:  // one less than the others
      keys[random.below(count)] = std::max(0, longest - 1);
      break;
    case 3:  // one long, the rest short
      for (int32_t& k : keys) k = draw_length_up_to(random, std::min(longest, 33));
      keys[random.below(count)] = longest;
      break;
    case 4:  // ragged corners
      for (int32_t& k : keys) k = draw_length_up_to(random, longest);
      break;
    default:  // any length
      for (int32_t& k : keys) k = static_cast<int32_t>(random.between(0, longest));
      break;
  }
  if (random.chance(0.15)) keys[random.below(count)] = 0;
  return keys;
}

int32_t draw_queries(Random& random, BatchStyle style, int32_t keys) {
  switch (style) {
    case BatchStyle::kDecode:
      return 1;
    case BatchStyle::kFewQueries:
      return draw_length_up_to(random, kMostQueriesOfFew);
    case BatchStyle::kPrefill:
      return keys;
    case BatchStyle::kChunk:
      return draw_length_up_to(random, keys);
    case BatchStyle::kMixed:
      return draw_queries(random,
                          random.pick<BatchStyle>({BatchStyle::kDecode, BatchStyle::kFewQueries,
                                                   BatchStyle::kPrefill, BatchStyle::kChunk}),
                          keys);
    case BatchStyle::kShortKv:
      return random.chance(0.5) ? draw_length_up_to(random, keys)
                                : keys + draw_length_up_to(random, std::max(9, keys));
  }
  return 1;
}

/// A limit of a window. To the left, a window has one key more than its limit.
int32_t draw_limit(Random& random, const std::vector<SeqLen>& seqs) {
  int32_t longest = 1;
  for (const SeqLen& s : seqs) longest = std::max(longest, s.k);
  switch (random.below(6)) {
    case 0:  // a whole number of tiles, and one off
      return draw_length_up_to(random, longest);
    case 1: {  // a power of two keys in total, as in models
      std::vector<int32_t> wholes = {0};
      for (int32_t n = 16; n <= 2 * longest && n <= kMostCorner; n *= 2) wholes.push_back(n - 1);
      return random.pick(wholes);
    }
    case 2: {  // near a length
      const int32_t k = seqs.empty() ? longest : random.pick(seqs).k;
      return static_cast<int32_t>(std::max<int64_t>(0, k + random.between(-2, 1)));
    }
    case 3:
    case 4: {  // the window begins with a tile of the longest sequence, so a shorter one needs one more tile
      const int32_t tile = random.pick<int32_t>({16, 64, 128, 1024});
      const int64_t begin = tile * random.between(0, (longest - 1) / tile);
      return static_cast<int32_t>(longest - 1 - begin);
    }
    default:  // any
      return static_cast<int32_t>(random.between(0, longest));
  }
}

}  // namespace

int32_t draw_length_up_to(Random& random, int32_t most) {
  static const std::vector<int64_t> corners = corner_integers(0, kMostCorner);
  if (most <= 0) return 0;
  if (random.chance(0.1)) return static_cast<int32_t>(random.between(0, most));
  const auto end = std::ranges::upper_bound(corners, most);
  return static_cast<int32_t>(corners[random.below(static_cast<std::size_t>(end - corners.begin()))]);
}

std::vector<SeqLen> draw_batch(Random& random, BatchStyle style) {
  if (random.chance(0.005)) return {};
  const std::vector<int32_t> keys = draw_keys(random, draw_count(random), draw_longest(random));
  std::vector<SeqLen> seqs;
  for (const int32_t k : keys) {
    const int32_t q = draw_queries(random, style, k);
    seqs.push_back({style == BatchStyle::kShortKv ? q : std::min(q, k), k});
  }
  if (random.chance(0.15)) seqs[random.below(seqs.size())].q = 0;
  return seqs;
}

void stretch_over_units(Random& random, std::vector<SeqLen>& seqs) {
  const auto longest = static_cast<int32_t>(random.pick<int32_t>({1024, 2048, 2048, 3072, 4096}) +
                                            random.pick<int32_t>({-1, 0, 0, 0, 1}));
  const int32_t most_less = random.pick<int32_t>({1, 1, 64, 1024});
  for (SeqLen& s : seqs) {
    s.k = std::max(0, longest - static_cast<int32_t>(random.between(0, most_less)));
    s.q = std::min(s.q, random.pick<int32_t>({1, 2, 9}));
  }
}

std::string draw_window(Random& random, WindowStyle style, const std::vector<SeqLen>& seqs) {
  if (style == WindowStyle::kNone) return "none";
  const bool left = style != WindowStyle::kRight;
  const bool right = style != WindowStyle::kLeft;
  const int32_t l = left ? draw_limit(random, seqs) : -1;
  // Most windows end at the diagonal.
  const int32_t r = !right ? -1 : random.chance(0.6) && left ? 0 : draw_limit(random, seqs);
  return fmt::format("{},{}", l, r);
}

WindowStyle window_style(const std::string& value) {
  if (value == "none") return WindowStyle::kNone;
  if (value.starts_with("-1,")) return WindowStyle::kRight;
  return value.ends_with(",-1") ? WindowStyle::kLeft : WindowStyle::kBoth;
}

}  // namespace attnbench
