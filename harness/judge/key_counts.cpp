#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "harness/judge/case_inputs.h"
#include "harness/judge/misread.h"
#include "harness/judge/sample.h"
#include "harness/judge/weights.h"

namespace attnbench {
namespace {

constexpr double kLeastCounted =
    1e-3;                         ///< of the row's largest weight; biases may make others too small to see
constexpr double kCounts = 0.02;  ///< of a visible key's weight: another key with less is not seen
constexpr double kWhole = 0.05;   ///< distance of a count from a whole number, at most
constexpr double kMostTimes = 3;  ///< with larger counts it is rather a factor of a part

using Sets = std::vector<std::vector<char>>;

std::string name_of(const reference::RowId& id) {
  return fmt::format("seq {} pos {} head {}", id.seq, id.pos, id.head);
}

std::vector<int> members(const std::vector<char>& in) {
  std::vector<int> keys;
  for (std::size_t j = 0; j < in.size(); ++j) {
    if (in[j] != 0) keys.push_back(static_cast<int>(j));
  }
  return keys;
}

/// The weight of a key that counts once, over exp(score).
double level_of(const WeighedRow& row) {
  double level = INFINITY;
  for (std::size_t j = 0; j < row.seen.size(); ++j) {
    if (row.seen[j] != 0 && row.weight[j] > kCounts * std::exp(row.score[j] - row.lse))
      level = std::min(level, row.weight[j] / std::exp(row.score[j]));
  }
  return std::isfinite(level) ? level : std::exp(-row.lse);
}

/// Under a causal mask: queries whose keys rows see in place of their own. Empty if some row sees what no query does.
std::string keys_of_other_queries(const CaseParams& p, std::span<const WeighedRow> rows, const Sets& used) {
  if (!p.causal) return "";
  constexpr int kShown = 3;
  struct Place {
    int pos, head, q_len, query;
  };
  std::vector<Place> wrong;
  std::string text;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const reference::RowId& id = rows[r].id;
    const std::vector<int> keys = members(used[r]);
    if (rows[r].first() != 0) return "";
    const int q_len = p.seqs[static_cast<std::size_t>(id.seq)].q;
    const int query = id.pos + static_cast<int>(keys.size()) - 1 - rows[r].last();
    if (keys.empty() || keys.back() + 1 != std::ssize(keys) || query < 0 || query >= q_len) return "";
    wrong.push_back({id.pos, id.head, q_len, query});
    if (query != id.pos && wrong.size() % 7 < kShown && std::ranges::count(text, ',') < kShown - 1)
      text += fmt::format("{}{} sees those of pos {}", text.empty() ? "" : ", ", name_of(id), query);
  }
  const int group = p.num_heads_q / p.num_heads_kv;
  const std::pair<const char*, int (*)(const Place&, int)> known[] = {
      {"(head % group * q_len + pos) / group",
       [](const Place& at, int g) { return (at.head % g * at.q_len + at.pos) / g; }},
      {"pos / group", [](const Place& at, int g) { return at.pos / g; }},
      {"(pos * group + head % group) / q_len",
       [](const Place& at, int g) { return (at.pos * g + at.head % g) / at.q_len; }},
      {"q_len - 1 - pos", [](const Place& at, int) { return at.q_len - 1 - at.pos; }},
      {"0", [](const Place&, int) { return 0; }},
  };
  for (const auto& rule : known) {
    if (std::ranges::all_of(wrong, [&](const Place& at) { return rule.second(at, group) == at.query; }))
      return fmt::format("{}; the query is {} in all rows (group: query heads of a KV head)", text,
                         rule.first);
  }
  return text;
}

/// A sentence about the keys in `in`.
std::string sentence(const CaseParams& p, std::span<const WeighedRow> rows, const Sets& in, const Sets& may,
                     const char* verb) {
  std::size_t with = 0, example = rows.size();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (std::ranges::find(in[r], 1) == in[r].end()) continue;
    ++with;
    if (example == rows.size() || rows[r].seen.size() > rows[example].seen.size()) example = r;
  }
  if (with == 0) return "";
  const std::string rule = rule_of_keys(p, rows, in, may);
  return fmt::format("{} of {} rows {} {}; {}: {} (it must see {})", with, rows.size(), verb,
                     rule.empty() ? "some" : rule, name_of(rows[example].id),
                     ranges_text(members(in[example])), ranges_text(members(rows[example].seen)));
}

/// Terms of the denominator that no key explains. The LSE has more digits than O, if both have the same sum.
std::string too_many_terms(const CaseParams& p, std::span<const WeighedRow> rows, const KeyCounts& counts,
                           double tolerance) {
  if (p.sinks || p.alibi != Alibi::kNone) return "";
  std::string example;
  int with = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double sum = 0;
    for (const double c : counts.of[r]) sum += c;
    if (sum == 0) continue;
    const double terms = 1 / level_of(rows[r]), of_lse = std::exp(rows[r].got_lse);
    const bool same = std::abs(of_lse / terms - 1) <= tolerance;
    if (!same && std::isfinite(rows[r].got_lse)) return "";  // O alone is wrong
    const double more = (same ? of_lse : terms) - sum;
    if (std::abs(more) <= (same ? 1e-3 : 2 * tolerance) * sum) continue;
    if (more < 0 || std::abs(more - std::round(more)) > (same ? 1e-3 : tolerance) * (sum + more)) return "";
    if (with++ == 0)
      example = fmt::format("{} sees {:.0f} keys, and its denominator has {:.0f} terms", name_of(rows[r].id),
                            sum, sum + more);
  }
  if (with == 0) return "";
  return fmt::format(
      "the softmax denominator of {} of {} rows has terms of score 0 that are no visible keys, as masked "
      "keys whose score is set to 0 and not to -inf: {}",
      with, rows.size(), example);
}

}  // namespace

std::vector<WeighedRow> rows_to_weigh(const Case& c, std::span<const reference::RowId> ids, bool zero_q,
                                      int num_threads) {
  const std::vector<unsigned char> none;
  const CaseInputs right(c, none);
  reference::Problem problem = problem_of(c);
  problem.probs = true;
  Misread::How how;
  how.change = [](Tensor tensor, int, int, int, std::span<double> row) {
    if (tensor == Tensor::kQ) std::ranges::fill(row, 0.0);
  };
  const Misread zero(problem, right, how);
  const reference::Inputs& inputs = zero_q ? static_cast<const reference::Inputs&>(zero) : right;
  reference::Problem open = problem;
  open.causal = false;
  open.window_left = open.window_right = -1;
  open.attention_chunk = 0;
  open.sees = nullptr;
  open.k_ends.clear();
  open.sinks.clear();
  std::map<std::tuple<int, int, int>, std::size_t> place;
  std::vector<WeighedRow> rows;
  for (const reference::RowId& id : ids) {
    place[{id.seq, id.pos, id.head}] = rows.size();
    const auto keys = static_cast<std::size_t>(c.params.seqs[static_cast<std::size_t>(id.seq)].k);
    rows.push_back({id, std::vector<char>(keys, 0), std::vector<double>(keys, -INFINITY),
                    std::vector<double>(keys, 0.0)});
  }
  const auto take = [&](bool masked) {
    reference::attend(masked ? problem : open, inputs, ids, num_threads, [&](const reference::RowBlock& b) {
      const auto count = static_cast<std::size_t>(b.key_count), begin = static_cast<std::size_t>(b.key_begin);
      for (std::size_t r = 0; r < b.rows.size(); ++r) {
        WeighedRow& row = rows[place.at({b.rows[r].seq, b.rows[r].pos, b.rows[r].head})];
        if (masked) row.lse = b.lse[r];
        for (std::size_t j = 0; j < count; ++j) {
          const double prob = b.probs[r * count + j];
          if (begin + j >= row.seen.size()) break;
          if (masked) row.seen[begin + j] = prob > 0;
          if (!masked) row.score[begin + j] = std::log(prob) + b.lse[r];
        }
      }
    });
  };
  take(true);
  take(false);
  return rows;
}

bool are_right(std::span<const WeighedRow> rows, double tolerance) {
  return std::ranges::all_of(rows, [&](const WeighedRow& row) {
    double most = 0;
    const auto right = [&](std::size_t j) { return row.seen[j] != 0 ? std::exp(row.score[j] - row.lse) : 0; };
    for (std::size_t j = 0; j < row.seen.size(); ++j) most = std::max(most, right(j));
    for (std::size_t j = 0; j < row.seen.size(); ++j) {
      if (!(std::abs(row.weight[j] - right(j)) <= tolerance * right(j) + kLeastCounted * most)) return false;
    }
    return true;
  });
}

KeyCounts right_counts(std::span<const WeighedRow> rows) {
  KeyCounts counts;
  for (const WeighedRow& row : rows) counts.of.emplace_back(row.seen.begin(), row.seen.end());
  return counts;
}

KeyCounts count_keys(const CaseParams& p, std::span<const WeighedRow> rows, double tolerance) {
  KeyCounts counts;
  Sets missing, extra, twice, seen, hidden, used;
  bool whole = true;
  double masked_weight = 0;  // of a key that must not be seen, over that of a visible one
  for (const WeighedRow& row : rows) {
    const std::size_t n = row.seen.size();
    for (Sets* sets : {&missing, &extra, &twice, &seen, &hidden, &used}) sets->emplace_back(n, 0);
    std::vector<double>& of = counts.of.emplace_back(n, 0.0);
    const double level = level_of(row);
    const double most = n == 0 ? 0 : *std::ranges::max_element(row.score);
    for (std::size_t j = 0; j < n; ++j) {
      of[j] = row.seen[j] != 0;
      used.back()[j] = row.seen[j];
      if (!(row.score[j] > most + std::log(kLeastCounted))) continue;
      const double count = row.weight[j] / (level * std::exp(row.score[j]));
      const double near = std::round(count);
      (row.seen[j] != 0 ? seen : hidden).back()[j] = 1;
      if (row.seen[j] == 0) {
        if (!(std::abs(count) > kCounts)) continue;
        extra.back()[j] = 1;
        used.back()[j] = 1;
        of[j] = count;
        masked_weight = count;
        continue;
      }
      whole = whole && near <= kMostTimes &&
              std::abs(count - near) <=
                  std::max(near == 0 ? kCounts : kWhole * near, tolerance * std::max(1.0, near));
      of[j] = near;
      missing.back()[j] = near == 0;
      twice.back()[j] = near > 1;
      used.back()[j] = near > 0;
    }
  }
  if (!whole) return right_counts(rows);
  std::string text;
  const auto add = [&](const std::string& more) {
    if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
  };
  const auto unruly = [&](const Sets& in, const Sets& may) {
    const auto any = [](const std::vector<char>& row) { return std::ranges::find(row, 1) != row.end(); };
    return std::ranges::any_of(in, any) && rule_of_keys(p, rows, in, may).empty();
  };
  const bool no_rule = unruly(missing, seen) || unruly(extra, hidden);
  const std::string others = no_rule ? keys_of_other_queries(p, rows, used) : "";
  if (!others.empty()) {
    add("rows see the keys of other queries: " + others);
  } else {
    add(sentence(p, rows, missing, seen, "miss keys:"));
    add(sentence(p, rows, extra, hidden, "see keys that they must not see:"));
    if (masked_weight > 0 && std::abs(masked_weight - 1) > kWhole)
      text += fmt::format(
          ", which weigh {:.3g} times as much as visible ones at q = 0, as with a score of {:.3g}",
          masked_weight, std::log(masked_weight));
    const bool none = text.empty();
    add(sentence(p, rows, twice, seen, "count keys twice or more:"));
    counts.only_twice = none && !text.empty();
  }
  add(too_many_terms(p, rows, counts, tolerance));
  counts.clue = text;
  return counts;
}

}  // namespace attnbench
