#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "harness/judge/weights.h"

namespace attnbench {
namespace {

struct Rule {
  std::string text;
  std::function<bool(const WeighedRow& row, int key)> holds;
  bool fixed = false;  ///< the same keys in each row
};

/// Sizes of tiles and pages, the largest first: a rule of a large block is a rule of its parts, too.
std::vector<int> block_sizes(const CaseParams& p) {
  std::vector<int> sizes = {256, 128, 64, 32, 16, 8, 4, 2};
  if (p.paged() && std::ranges::find(sizes, p.block_size) == sizes.end())
    sizes.insert(sizes.begin(), p.block_size);
  return sizes;
}

int count_of(const std::vector<char>& in) { return static_cast<int>(std::ranges::count(in, 1)); }

std::string keys_text(int n) { return n == 1 ? "key" : fmt::format("{} keys", n); }

std::vector<Rule> rules_for(const CaseParams& p, const std::vector<char>& in, int least, int most) {
  const int n = count_of(in);
  std::vector<Rule> rules;
  if (least == most)
    rules.push_back(
        {fmt::format("key {}", least), [least](const WeighedRow&, int j) { return j == least; }, true});
  const Rule more[] = {
      {"all keys that it must see",
       [](const WeighedRow& r, int j) { return r.seen[static_cast<std::size_t>(j)] != 0; }},
      {"all others of its sequence",
       [](const WeighedRow& r, int j) { return r.seen[static_cast<std::size_t>(j)] == 0; }},
      {"all behind its last one", [](const WeighedRow& r, int j) { return j > r.last(); }},
      {"all before its first one", [](const WeighedRow& r, int j) { return j < r.first(); }},
      {fmt::format("its last {}", keys_text(n)),
       [n](const WeighedRow& r, int j) { return j > r.last() - n && j <= r.last(); }},
      {fmt::format("its first {}", keys_text(n)),
       [n](const WeighedRow& r, int j) { return j >= r.first() && j < r.first() + n; }},
      {fmt::format("the {} behind its last one", keys_text(n)),
       [n](const WeighedRow& r, int j) { return j > r.last() && j <= r.last() + n; }},
      {fmt::format("the {} before its first one", keys_text(n)),
       [n](const WeighedRow& r, int j) { return j < r.first() && j >= r.first() - n; }},
  };
  rules.insert(rules.end(), std::begin(more), std::end(more));
  for (const int b : block_sizes(p)) {
    rules.push_back({fmt::format("those behind the last whole block of {} keys of its sequence", b),
                     [b](const WeighedRow& r, int j) { return j >= r.keys() / b * b; }});
    rules.push_back({fmt::format("those in the last block of {} keys that it sees", b),
                     [b](const WeighedRow& r, int j) { return j >= r.last() / b * b && j <= r.last(); }});
    rules.push_back({fmt::format("those behind its last one, up to the end of its block of {} keys", b),
                     [b](const WeighedRow& r, int j) { return j > r.last() && j / b == r.last() / b; }});
    rules.push_back({fmt::format("those before its first one, from the start of its block of {} keys on", b),
                     [b](const WeighedRow& r, int j) { return j < r.first() && j / b == r.first() / b; }});
  }
  rules.push_back(
      {fmt::format("from key {} on", least), [least](const WeighedRow&, int j) { return j >= least; }, true});
  rules.push_back({fmt::format("keys {} to {}", least, most),
                   [least, most](const WeighedRow&, int j) { return j >= least && j <= most; }, true});
  return rules;
}

}  // namespace

int WeighedRow::first() const {
  const auto at = std::ranges::find(seen, 1);
  return at == seen.end() ? -1 : static_cast<int>(at - seen.begin());
}
int WeighedRow::last() const {
  for (int j = keys() - 1; j >= 0; --j) {
    if (seen[static_cast<std::size_t>(j)] != 0) return j;
  }
  return -1;
}

std::string ranges_text(const std::vector<int>& keys) {
  constexpr int kMost = 4;
  std::string text;
  int ranges = 0;
  for (std::size_t i = 0, next = 0; i < keys.size(); i = next) {
    for (next = i + 1; next < keys.size() && keys[next] == keys[next - 1] + 1; ++next) {
    }
    if (++ranges > kMost) return text + ", ...";
    text += (text.empty() ? "" : ", ") +
            (next - i == 1 ? std::to_string(keys[i]) : fmt::format("{} to {}", keys[i], keys[next - 1]));
  }
  return text;
}

std::string rule_of_keys(const CaseParams& p, std::span<const WeighedRow> rows,
                         const std::vector<std::vector<char>>& in,
                         const std::vector<std::vector<char>>& may) {
  std::vector<std::size_t> with;  // rows that have members
  int least = INT32_MAX, most = -1;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (count_of(in[r]) == 0) continue;
    with.push_back(r);
    for (int j = 0; j < rows[r].keys(); ++j) {
      if (in[r][static_cast<std::size_t>(j)] == 0) continue;
      least = std::min(least, j);
      most = std::max(most, j);
    }
  }
  if (with.empty()) return "";
  std::vector<Rule> rules = rules_for(p, in[with.front()], least, most);
  std::vector<int> sizes = block_sizes(p);
  std::ranges::sort(sizes);
  for (const int b : sizes) {  // the same places in each block
    std::vector<char> of(static_cast<std::size_t>(b), 0);
    for (const std::size_t r : with) {
      for (int j = 0; j < rows[r].keys(); ++j)
        of[static_cast<std::size_t>(j % b)] |= in[r][static_cast<std::size_t>(j)];
    }
    std::vector<int> places;
    for (int i = 0; i < b; ++i) {
      if (of[static_cast<std::size_t>(i)] != 0) places.push_back(i);
    }
    if (2 * places.size() > of.size()) continue;
    rules.push_back({fmt::format("those at {} of each block of {} keys", ranges_text(places), b),
                     [of, b](const WeighedRow&, int j) { return of[static_cast<std::size_t>(j % b)] != 0; },
                     true});
  }
  for (const bool ends : {true, false}) {
    const Rule *first = nullptr, *fixed = nullptr;  // rows of few lengths may suit both
    for (const Rule& rule : rules) {
      const bool holds = std::ranges::all_of(with, [&](std::size_t r) {
        for (int j = 0; j < rows[r].keys(); ++j) {
          const auto at = static_cast<std::size_t>(j);
          if (!ends && (j == rows[r].first() || j == rows[r].last())) continue;
          if (may[r][at] != 0 && rule.holds(rows[r], j) != (in[r][at] != 0)) return false;
        }
        return true;
      });
      if (holds && first == nullptr) first = &rule;
      if (holds && rule.fixed && fixed == nullptr) fixed = &rule;
    }
    if (first == nullptr) continue;
    const bool both = fixed != nullptr && fixed != first && !first->text.starts_with("all ");
    return first->text + (both ? ", or " + fixed->text : "") +
           (ends ? "" : ", but for its first or last key");
  }
  return "";
}

}  // namespace attnbench
