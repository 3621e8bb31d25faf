#include "harness/compare/pairing.h"

#include <map>
#include <string>

namespace attnbench {
namespace {

struct Group {
  std::vector<const Record*> base, fresh;
};

/// Removes pairs for which `fits` holds from the group.
template <class Fits>
void take_pairs(Group& g, std::vector<ResultPair>& out, Fits fits) {
  for (const Record*& b : g.base) {
    for (const Record*& f : g.fresh) {
      if (b == nullptr || f == nullptr || !fits(*b, *f)) continue;
      out.emplace_back(b, f);
      b = f = nullptr;
    }
  }
  std::erase(g.base, nullptr);
  std::erase(g.fresh, nullptr);
}

}  // namespace

std::vector<ResultPair> pair_results(const ResultSet& base, const ResultSet& fresh, Match match) {
  std::vector<std::string> order;
  std::map<std::string, Group> groups;
  const auto group_of = [&](const Record& r) -> Group& {
    // By the entry's name: an entry of plain Google Benchmark pairs with one of attnbench of the same name.
    const std::string key = match == Match::kId || r.kernel.empty() ? r.item.id : record_name(r);
    const auto [it, is_new] = groups.try_emplace(key);
    if (is_new) order.push_back(key);
    return it->second;
  };
  for (const Record& r : base.results) group_of(r).base.push_back(&r);
  for (const Record& r : fresh.results) group_of(r).fresh.push_back(&r);

  std::vector<ResultPair> pairs;
  for (const std::string& key : order) {
    Group& g = groups[key];
    take_pairs(g, pairs,
               [](const Record& b, const Record& f) { return b.kernel == f.kernel && b.device == f.device; });
    take_pairs(g, pairs, [](const Record& b, const Record& f) { return b.kernel == f.kernel; });
    if (g.base.size() == 1 && g.fresh.size() == 1) {
      take_pairs(g, pairs, [](const Record&, const Record&) { return true; });
    }
    for (const Record* b : g.base) pairs.emplace_back(b, nullptr);
    for (const Record* f : g.fresh) pairs.emplace_back(nullptr, f);
  }
  return pairs;
}

}  // namespace attnbench
