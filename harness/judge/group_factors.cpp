#include "harness/judge/group_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "harness/judge/logit_factor.h"
#include "harness/judge/stored_out.h"

namespace attnbench {
namespace {

constexpr std::size_t kMostGroups = 8, kRowsOfGroup = 8, kFewestOfGroup = 4;
using Group = std::pair<int, int>;  ///< sequence, KV head

/// "seq 1 KV head 0: 1.25, ..."; empty if all are alike.
std::string factors_text(const std::map<Group, double>& factors) {
  if (factors.size() < 2) return "";
  const auto [least, most] =
      std::ranges::minmax_element(factors, {}, &std::pair<const Group, double>::second);
  if (most->second / least->second < 1.02) return "";
  std::string text;
  for (const auto& [group, factor] : factors)
    text += fmt::format("{}seq {} KV head {}: {:.3g}", text.empty() ? "" : ", ", group.first, group.second,
                        factor);
  return text;
}

}  // namespace

std::string group_factors(const Launched& launched, const reference::Problem& right,
                          const reference::Inputs& inputs, std::span<const RowFinding> rows,
                          int num_threads) {
  const CaseParams& p = launched.item.params;
  if (dtype_size(p.type_of_q()) > 1 && dtype_size(p.type_of_k()) > 1 && dtype_size(p.type_of_v()) > 1)
    return "";
  std::map<Group, std::vector<RowFinding>> groups;
  bool lse = false;
  for (const RowFinding& r : rows) {
    if (!r.wrong()) continue;
    lse = lse || r.wrong_lse;
    std::vector<RowFinding>& group = groups[{r.id.seq, r.id.head / (p.num_heads_q / p.num_heads_kv)}];
    if (group.size() < kRowsOfGroup) group.push_back(r);
  }
  std::map<Group, double> of_v, of_logits;
  for (const auto& [key, of] : groups) {
    if (of.size() < kFewestOfGroup) continue;
    const auto [least, most] = std::ranges::minmax_element(of, {}, &RowFinding::factor);
    if (!lse && least->factor > 0 && most->factor / least->factor < 1.02) of_v[key] = most->factor;
    std::vector<reference::RowId> ids;
    for (const RowFinding& r : of) ids.push_back(r.id);
    if (!lse || of_logits.size() == kMostGroups) continue;
    if (const auto found = logit_factor(launched, right, inputs, of, ids, num_threads))
      of_logits[key] = found->value;
  }
  if (const std::string text = factors_text(of_v); !text.empty() && of_v.size() == groups.size())
    return fmt::format(
        "looks like: descales of V are read elsewhere: O has a factor for each sequence and KV head ({})",
        text);
  const std::string text = factors_text(of_logits);
  if (text.empty() || of_logits.size() < std::min(groups.size(), kMostGroups)) return "";
  return fmt::format(
      "looks like: descales of q or K are read elsewhere: logits have a factor for each sequence and KV head ({})",
      text);
}

std::string out_scale_clue(const Case& c, std::span<const std::pair<double, double>> of) {
  const StoredOut stored(c);
  if (stored.type != DType::kE4m3 || of.empty()) return "";
  const auto scaled_by = [&](double scale) {
    return std::ranges::all_of(of, [&](const auto& element) {
      const double expected =
          static_cast<double>(round_to(stored.type, static_cast<float>(element.second / scale)));
      return std::abs(element.first - expected) <= 0.15 * std::abs(expected) + 0x1p-8;
    });
  };
  if (scaled_by(1)) return "looks like: O is not divided by its scale";
  if (scaled_by(1 / stored.scale)) return "looks like: O is multiplied by its scale, not divided";
  return "";
}

}  // namespace attnbench
