#include <algorithm>
#include <cmath>
#include <map>

#include "harness/judge/weights.h"

namespace attnbench {
namespace {

constexpr std::size_t kLeastRowsOfKey = 6;  ///< with fewer, weights may be alike by chance

/// (keys) the right weights of a row.
std::vector<double> right_weights(const WeighedRow& row) {
  std::vector<double> p(row.seen.size(), 0.0);
  for (std::size_t j = 0; j < p.size(); ++j) {
    if (row.seen[j] != 0) p[j] = std::exp(row.score[j] - row.lse);
  }
  return p;
}

/// Rows of one sequence and KV head.
struct Group {
  std::vector<const WeighedRow*> rows;
  std::vector<std::vector<double>> right;

  /// Whether V of key `j` has the weight of key `other`, beside its own if `both`, in all rows.
  bool has(std::size_t j, std::size_t other, bool both, double tolerance) const {
    std::size_t shown = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double p = right[r][other] + (both ? right[r][j] : 0), got = rows[r]->weight[j];
      if (!(std::abs(got - p) <= 2 * tolerance * p + 1e-5)) return false;
      shown += right[r][other] > 1e-4;
    }
    return shown >= kLeastRowsOfKey;
  }
};

}  // namespace

std::string value_places(const CaseParams& p, std::span<const WeighedRow> rows, double tolerance) {
  std::map<std::pair<int, int>, Group> groups;
  for (const WeighedRow& row : rows) {
    if (!(std::abs(row.got_lse - row.lse) <= 1e-3)) return "";
    Group& group = groups[{row.id.seq, row.id.head / (p.num_heads_q / p.num_heads_kv)}];
    group.rows.push_back(&row);
    group.right.push_back(right_weights(row));
  }
  std::map<int, int> from;  // key -> the key whose V it meets
  for (const auto& [of, group] : groups) {
    if (group.rows.size() < kLeastRowsOfKey) continue;
    const std::size_t keys = group.rows.front()->seen.size();
    for (std::size_t j = 0; j < keys; ++j) {
      if (group.has(j, j, false, tolerance)) continue;
      for (std::size_t other = 0; other < keys; ++other) {
        if (other == j || !(group.has(j, other, false, tolerance) || group.has(j, other, true, tolerance)))
          continue;
        const auto [known, added] = from.try_emplace(static_cast<int>(other), static_cast<int>(j));
        if (!added && known->second != static_cast<int>(j)) return "";
        break;
      }
    }
  }
  if (from.size() < 2) return "";
  return "the LSE is right, but weights meet V of other keys, as if V is read in other places than K: those of keys " +
         pairs_text(from, "meet V of");
}

}  // namespace attnbench
