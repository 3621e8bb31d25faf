#include "harness/judge/misread_heads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <map>
#include <vector>

#include "harness/judge/mistakes.h"

namespace attnbench {
namespace {

constexpr int kMostHeads = 64;          ///< KV heads that are tried
constexpr std::size_t kFewestRows = 4;  ///< wrong rows; fewer may match by chance
constexpr std::size_t kMostNamed = 6;   ///< ranges of query heads that are named

/// What one KV head explains of a query head's rows.
struct Explained {
  std::size_t rows = 0;
  bool lse_too = true;
};

}  // namespace

std::optional<Explanation> misread_heads(const Launched& launched, const reference::Problem& right,
                                         const reference::Inputs& inputs,
                                         std::span<const reference::RowId> wrong, int num_threads) {
  const CaseParams& p = launched.item.params;
  const int group = p.num_heads_q / p.num_heads_kv;
  if (p.num_heads_kv < 2 || p.num_heads_kv > kMostHeads || wrong.size() < kFewestRows) return std::nullopt;
  std::map<int, std::size_t> rows_of;  // by query head
  for (const reference::RowId& id : wrong) ++rows_of[id.head];
  std::map<int, int> read;  // KV head by query head
  bool lse_too = true;
  for (int kv_head = 0; kv_head < p.num_heads_kv && read.size() < rows_of.size(); ++kv_head) {
    const Mistake m = reads_kv_head(right, inputs, kv_head);
    std::map<int, Explained> explained;
    for (const RowFinding& r : find_rows(launched, m.problem, *m.inputs, wrong, num_threads)) {
      Explained& of = explained[r.id.head];
      of.rows += !r.wrong_o;
      of.lse_too = of.lse_too && !r.wrong_lse;
    }
    for (const auto& [head, of] : explained) {
      if (kv_head == head / group || of.rows < rows_of[head] || read.contains(head)) continue;
      read[head] = kv_head;
      lse_too = lse_too && of.lse_too;
    }
  }
  if (read.size() < rows_of.size()) return std::nullopt;
  std::vector<std::string> named;
  for (auto from = read.begin(); from != read.end();) {
    auto end = std::next(from);  // of neighbouring heads that read the same one
    while (end != read.end() && end->first == std::prev(end)->first + 1 && end->second == from->second) ++end;
    const int last = std::prev(end)->first;
    if (named.size() == kMostNamed) {
      named.emplace_back("...");
      break;
    }
    named.push_back(last == from->first
                        ? fmt::format("head {} reads {}", last, from->second)
                        : fmt::format("heads {} to {} read {}", from->first, last, from->second));
    from = end;
  }
  return Explanation{
      fmt::format("query heads read other KV heads than h / {}: {}", group, fmt::join(named, ", ")), lse_too};
}

}  // namespace attnbench
