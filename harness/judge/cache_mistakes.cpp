#include "harness/judge/cache_mistakes.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {
namespace {

constexpr std::size_t kRowsTried = 64, kLeastRows = 4;  ///< fewer may match by chance
constexpr int64_t kMostSearched = 1 << 15;  ///< rows among which that of another one is looked for

constexpr CacheMistake kMistakes[] = {
    {.text = "rows of {} are not written", .kept = true},
    {.text = "rows of {} for slot s are written to slot s + 1", .slots = 1},
    {.text = "rows of {} for slot s are written to slot s - 1", .slots = -1},
    {.text = "rows of {} are written one block too far", .blocks = 1},
    {.text = "rows of {} are written one block too early", .blocks = -1},
    {.text = "head h of {} has what belongs to head h + 1", .heads = 1},
    {.text = "head h of {} has what belongs to head h - 1", .heads = -1},
    {.text = "all heads of {} have what belongs to head 0", .head_0 = true},
    {.text = "rows of {} have what belongs to the other tensor", .other_tensor = true},
    {.text = "scales of {} are not applied", .scale = RowScale::kNone},
    {.text = "rows of {} are multiplied by their scales, not divided", .scale = RowScale::kInverse},
    {.text = "rows of {} have the scale of channel 0", .scale = RowScale::kChannel0},
    {.text = "rows of {} have the scale of head 0", .scale = RowScale::kHead0},
    {.text = "rows of {} have the scale of head h + 1", .scale = RowScale::kNextHead},
    {.text = "rows of {} have the scale of the other tensor", .scale = RowScale::kOtherTensor},
    {.text = "rows of {} that come as stored are divided by their scales again", .scale = RowScale::kAgain},
    {.text = "rows of {} are rounded to the other type of e4m3 and e5m2", .number = RowNumber::kOtherFloat},
    {.text = "numbers of {} are cut off towards zero, not rounded", .number = RowNumber::kTruncated},
    {.text = "numbers of {} beyond the range of their type wrap round", .number = RowNumber::kWraps},
    {.text = "rows of {} are not rotated", .turn = RowTurn::kNone},
    {.text = "rows of {} are rotated as at the position before", .turn = RowTurn::kPositionBefore},
    {.text = "rows of {} are rotated as at the position behind", .turn = RowTurn::kPositionAfter},
    {.text = "positions of {} count from the first new token", .turn = RowTurn::kFromFirstNew},
    {.text = "rows of {} are rotated in other pairs: halves for neighbours, or neighbours for halves",
     .turn = RowTurn::kOtherPairs},
    {.text = "rows of {} are rotated the other way: the sine has the wrong sign", .turn = RowTurn::kInverse},
};

std::string looks_like(const CacheMistake& m, const char* name, std::size_t tried) {
  return fmt::format("looks like: {} (all {} wrong rows tried match this mistake)",
                     fmt::format(fmt::runtime(m.text), name), tried);
}

}  // namespace

CacheFindings find_in_cache(int64_t rows, int32_t heads, const CacheJudge& judge) {
  CacheFindings found{.rows = rows * heads};
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t h = 0; h < heads; ++h) {
      if (judge.wrong({r, h})) found.tried.push_back({r, h});
    }
  }
  found.wrong = std::ssize(found.tried);
  if (const std::size_t wrong = found.tried.size(); wrong > kRowsTried) {
    for (std::size_t i = 0; i < kRowsTried; ++i) found.tried[i] = found.tried[i * wrong / kRowsTried];
    found.tried.resize(kRowsTried);
  }
  // Rows that are written elsewhere are missing where they belong.
  const bool missing = std::ranges::any_of(found.tried, judge.written);
  for (const CacheMistake& m : kMistakes) {
    if (!found.tried.empty() && (missing || (m.slots == 0 && m.blocks == 0)) &&
        std::ranges::all_of(found.tried, [&](const CacheRow& row) { return judge.gives(m, row); }))
      found.mistakes.push_back(&m);
  }
  const std::size_t searched = rows * heads <= kMostSearched ? found.tried.size() : 0;
  for (std::size_t i = 0; found.mistakes.empty() && found.other.empty() && i < searched; i += kLeastRows)
    found.other = judge.other(found.tried[i]);
  return found;
}

std::string unwritten_channels(const unsigned char* got, const unsigned char* right,
                               const unsigned char* before, int32_t channels, DType type, const char* name) {
  const std::size_t size = dtype_size(type);
  const auto same = [&](const unsigned char* a, const unsigned char* b, int32_t c) {
    return std::equal(a + static_cast<std::size_t>(c) * size, a + static_cast<std::size_t>(c + 1) * size,
                      b + static_cast<std::size_t>(c) * size);
  };
  int32_t first = 0;
  while (first < channels && same(got, right, first)) ++first;
  for (int32_t c = first; c < channels; ++c) {
    if (!same(got, before, c)) return "";
  }
  return first == 0 || first == channels
             ? ""
             : fmt::format("looks like: channels {} to {} of {} are not written", first, channels - 1, name);
}

std::vector<unsigned char> filled_row(FillJob job, RowOwner owner) {
  job.num_rows = job.block_size = 1;
  job.stride_head = job.head_dim;
  job.owners = &owner;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(job.num_heads * job.head_dim) *
                                   dtype_size(job.dtype));
  job.base = bytes.data();
  fill_host(job);
  return bytes;
}

std::vector<std::string> cache_clues(const std::array<CacheFindings, 2>& of) {
  std::vector<std::string> clues;
  const auto add = [&](const char* name, const CacheFindings& f,
                       const std::vector<const CacheMistake*>& mistakes) {
    for (const CacheMistake* m : mistakes) {
      if (f.tried.size() >= kLeastRows) clues.push_back(looks_like(*m, name, f.tried.size()));
    }
    if (!f.other.empty()) clues.push_back(f.other);
  };
  const auto& [k, v] = of;
  std::string counts;
  for (const auto& [name, f] : {std::pair("K", &k), {"V", &v}}) {
    if (f->wrong > 0)
      counts += fmt::format("{}{} of {} rows of {}", counts.empty() ? "" : " and ", f->wrong, f->rows, name);
  }
  if (counts.empty()) return clues;
  clues.push_back(counts + " are wrong (a row is one slot of one head)");
  std::vector<const CacheMistake*> both, of_k, of_v;
  const auto is_in = [](const auto& all, const CacheMistake* m) {
    return std::ranges::find(all, m) != all.end();
  };
  for (const CacheMistake* m : k.mistakes) (is_in(v.mistakes, m) ? both : of_k).push_back(m);
  for (const CacheMistake* m : v.mistakes) {
    if (!is_in(both, m)) of_v.push_back(m);
  }
  const std::size_t tried = k.tried.size() + v.tried.size();
  for (const CacheMistake* m : both) {
    if (tried >= kLeastRows) clues.push_back(looks_like(*m, "K and V", tried));
  }
  if (clues.size() > 1) return clues;
  add("K", k, of_k);
  add("V", v, of_v);
  return clues;
}

}  // namespace attnbench
