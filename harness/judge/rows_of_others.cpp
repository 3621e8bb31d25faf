#include "harness/judge/rows_of_others.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "harness/judge/row_pattern.h"
#include "kernels/contract/dtype.h"

namespace attnbench {
namespace {

struct Expected {
  reference::RowId id;
  std::vector<double> o;
};

bool alike(const std::vector<double>& a, const std::vector<double>& b, double roundoff) {
  double error2 = 0, size2 = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    error2 += (a[c] - b[c]) * (a[c] - b[c]);
    size2 += b[c] * b[c];
  }
  return error2 <= 16 * roundoff * roundoff * size2;
}

}  // namespace

std::string rows_of_others(const CaseParams& p, const reference::Problem& problem,
                           const reference::Inputs& inputs, std::span<const WrongRow> wrong,
                           std::span<const reference::RowId> of, int num_threads) {
  std::vector<Expected> expected;
  std::mutex mutex;
  const auto d = static_cast<std::size_t>(p.dim_v());
  if (wrong.empty()) return "";
  reference::attend(problem, inputs, of, num_threads, [&](const reference::RowBlock& b) {
    const std::lock_guard lock(mutex);
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      if (b.w2[r] > 0.5) continue;  // one or two keys carry it: other rows may be equal
      const auto o = b.o.subspan(r * d, d);
      expected.push_back({b.rows[r], {o.begin(), o.end()}});
    }
  });
  const double u = unit_roundoff(p.type_of_out());
  // With one or two channels, some row is as near to any wrong one by chance.
  if (static_cast<double>(expected.size()) * std::pow(8 * u, static_cast<double>(d)) > 0.01) return "";
  for (const bool added : {false, true}) {  // to its own row
    std::string example;
    std::size_t found = 0;
    for (const WrongRow& row : wrong) {
      std::vector<double> got = row.out;
      const auto own = std::ranges::find(expected, row.id, &Expected::id);
      if (added && own == expected.end()) continue;
      for (std::size_t c = 0; added && c < d; ++c) got[c] -= own->o[c];
      const auto fits = [&](const Expected& e) {
        return e.id != row.id && alike(got, e.o, u);  // its own: slightly wrong
      };
      const auto other = std::ranges::find_if(expected, fits);
      if (other == expected.end()) continue;
      if (found++ == 0)
        example = fmt::format("{} has {} {}", row_text(row.id),
                              added ? "its own O plus that of" : "what belongs to", row_text(other->id));
    }
    if (found == 0 || found * 2 < wrong.size()) continue;
    return fmt::format("looks like: {}: {} (so in {} of {} wrong rows tried)",
                       added ? "rows keep the sums of others" : "rows change places", example, found,
                       wrong.size());
  }
  return "";
}

}  // namespace attnbench
