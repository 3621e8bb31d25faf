#include "harness/judge/two_mistakes.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/clues.h"

namespace attnbench {
namespace {

constexpr std::size_t kFewest = 8;  ///< wrong rows; fewer may match by chance
/// Most values of K and V that the first row reads for all pairs. They take a second or two.
constexpr int64_t kValuesOfPairs = 1 << 28;

/// The wrong rows, those with the fewest keys first, then the right ones.
std::vector<reference::RowId> short_rows_first(const CaseParams& p, std::span<const reference::RowId> tried,
                                               std::size_t wrong) {
  std::vector<reference::RowId> out(tried.begin(), tried.end());
  const auto keys = [&](const reference::RowId& id) { return p.seqs[static_cast<std::size_t>(id.seq)].k; };
  std::stable_sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(wrong),
                   [&](const auto& a, const auto& b) { return keys(a) < keys(b); });
  return out;
}

}  // namespace

std::vector<Explanation> two_mistakes(const Launched& launched, const reference::Problem& right,
                                      std::span<const Mistake> mistakes,
                                      std::span<const reference::RowId> tried, std::size_t wrong,
                                      int num_threads) {
  if (wrong < kFewest) return {};
  const CaseParams& p = launched.item.params;
  const std::vector<reference::RowId> rows = short_rows_first(p, tried, wrong);
  const int64_t count = std::ranges::count_if(mistakes, [](const Mistake& m) { return m.in_pairs; });
  const int64_t keys = p.seqs[static_cast<std::size_t>(rows[0].seq)].k;
  if (count * count / 2 * keys * (p.head_dim + p.dim_v()) > kValuesOfPairs) return {};
  std::vector<Explanation> out;
  for (std::size_t a = 0; a < mistakes.size(); ++a) {
    for (std::size_t b = a + 1; b < mistakes.size(); ++b) {
      const Mistake &one = mistakes[a], &other = mistakes[b];
      if ((one.misreads && other.misreads) || !one.in_pairs || !other.in_pairs) continue;
      reference::Problem problem = right;
      one.change(problem);
      other.change(problem);
      std::vector<RowFinding> all;
      // Most pairs fail in the first row. All rows are the last to be looked at.
      const auto explains = [&](std::size_t from, std::size_t to) {
        const auto found = find_rows(launched, problem, one.misreads ? *one.inputs : *other.inputs,
                                     std::span(rows).subspan(from, to - from), num_threads);
        all.insert(all.end(), found.begin(), found.end());
        return std::ranges::none_of(found, [](const RowFinding& r) { return r.wrong_o; });
      };
      if (!explains(0, 1) || !explains(1, kFewest) || !explains(kFewest, rows.size())) continue;
      if (match_by_zeros(launched, all)) continue;
      const bool lse_too = std::ranges::none_of(all, [](const RowFinding& r) { return r.wrong_lse; });
      out.push_back({fmt::format("{}{}{}{}", kTwoMistakes, one.text, kAndTheOther, other.text), lse_too});
    }
  }
  return out;
}

}  // namespace attnbench
