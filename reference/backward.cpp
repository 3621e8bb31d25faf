#include "reference/backward.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/backward_tiles.h"
#include "reference/check.h"
#include "reference/parallel.h"
#include "reference/plan.h"

namespace attnbench::reference {
namespace {

constexpr int64_t kMostTileKeys = 64;  ///< keys of a tile, for products as fast as those of square matrices

void check_keys(const Problem& p, std::span<const KeyId> keys) {
  for (const KeyId& k : keys) {
    require(k.seq >= 0 && k.seq < static_cast<int>(p.k_lens.size()) && k.pos >= 0 &&
                k.pos < p.k_lens[k.seq] && k.kv_head >= 0 && k.kv_head < p.num_heads_kv,
            "no key (seq " + std::to_string(k.seq) + ", pos " + std::to_string(k.pos) + ", KV head " +
                std::to_string(k.kv_head) + ") in the problem");
  }
}

/// Rows whose facts the keys need and that are not in `rows`.
std::vector<RowId> rows_of_keys(const Problem& p, std::span<const KeyId> keys, std::span<const RowId> rows) {
  const int ratio = p.num_heads_q / p.num_heads_kv;
  std::map<std::pair<int, int>, KeyRange>
      keys_of;  // from the first to the last key of a sequence and KV head
  for (const KeyId& k : keys) {
    KeyRange& range = keys_of.try_emplace({k.seq, k.kv_head}, KeyRange{k.pos, k.pos + 1}).first->second;
    range = {std::min<int64_t>(range.begin, k.pos), std::max<int64_t>(range.end, k.pos + 1)};
  }
  std::set<std::tuple<int, int, int>> there;
  for (const RowId& r : rows) {
    if (keys_of.count({r.seq, r.head / ratio})) there.insert({r.seq, r.pos, r.head});
  }
  std::vector<RowId> more;
  for (const auto& [column, range] : keys_of) {
    const auto [seq, kv_head] = column;
    for (int pos = 0; pos < p.q_lens[seq]; ++pos) {
      const KeyRange seen = visible_keys(p, seq, pos);
      if (seen.empty() || seen.begin >= range.end || seen.end <= range.begin) continue;
      for (int head = kv_head * ratio; head < (kv_head + 1) * ratio; ++head) {
        if (!there.count({seq, pos, head})) more.push_back({seq, pos, head});
      }
    }
  }
  return more;
}

std::vector<KeyTile> cut_key_tiles(const Problem& p, const std::vector<KeyId>& keys, int threads) {
  const auto parts = static_cast<int64_t>(keys.size()) / (4 * threads) + 1;
  const int64_t most = std::clamp<int64_t>(parts, 8, kMostTileKeys);
  std::vector<KeyTile> tiles;
  for (int64_t i = 0; i < std::ssize(keys); ++i) {
    const KeyId& key = keys[i];
    const bool joins = !tiles.empty() && i - tiles.back().first < most &&
                       keys[tiles.back().first].seq == key.seq &&
                       keys[tiles.back().first].kv_head == key.kv_head;
    if (!joins) tiles.push_back({i, i, 0.0});
    tiles.back().last = i + 1;
    // Under a causal mask the rows that see a key are those behind it.
    const int q_len = p.q_lens[key.seq];
    const int behind = std::max(0, (p.top_left ? q_len : p.k_lens[key.seq]) - key.pos);
    tiles.back().cost += p.causal ? std::min(q_len, behind) : q_len;
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const KeyTile& a, const KeyTile& b) { return a.cost > b.cost; });
  return tiles;
}

}  // namespace

void differentiate(const Problem& problem, const BackwardInputs& inputs, std::span<const RowId> rows,
                   std::span<const KeyId> keys, const PairErrorModel& errors, int num_threads,
                   const GradSinks& sinks) {
  check(problem);
  require(!problem.sees, "gradients of masks with gaps are not computed");
  check(problem, rows);
  check_keys(problem, keys);
  require(problem.k_ends.empty() && !problem.probs, "k_ends and probs have no gradients");
  require(num_threads >= 0, "num_threads must not be negative");
  const int threads = num_threads > 0 ? num_threads : omp_get_max_threads();
  std::vector<KeyId> sorted(keys.begin(), keys.end());
  std::sort(sorted.begin(), sorted.end(), [](const KeyId& a, const KeyId& b) {
    return std::tie(a.seq, a.kv_head, a.pos) < std::tie(b.seq, b.kv_head, b.pos);
  });
  const std::vector<RowId> wanted(rows.begin(), rows.end());
  const std::vector<RowId> more = rows_of_keys(problem, sorted, wanted);
  RowTable table(problem);
  for (const std::vector<RowId>* ids : {&wanted, &more}) {
    for (const RowId& r : *ids) table.add(r.seq, r.head);
    const Plan plan = make_plan(problem, *ids, threads);
    const bool gradients = ids == &wanted;
    for_each_item(
        threads, std::ssize(plan.tiles), [&] { return RowPass(problem, inputs, errors); },
        [&](RowPass& pass, int64_t i) {
          const QueryGrads g = pass.compute(plan, plan.tiles[i], gradients);
          for (size_t r = 0; r < g.rows.size(); ++r) table.row(g.rows[r]) = {g.facts[r], pass.errors()[r]};
          if (sinks.facts) sinks.facts(g.rows, g.facts);
          if (gradients && sinks.queries) sinks.queries(g);
        });
  }
  const std::vector<KeyTile> tiles = cut_key_tiles(problem, sorted, threads);
  for_each_item(
      threads, std::ssize(tiles), [&] { return KeyPass(problem, inputs, table); },
      [&](KeyPass& pass, int64_t i) {
        const KeyTile& t = tiles[i];
        const KeyGrads g = pass.compute({sorted.data() + t.first, static_cast<size_t>(t.last - t.first)});
        if (sinks.keys) sinks.keys(g);
      });
}

std::vector<KeyId> all_keys(const Problem& problem) {
  check(problem);
  require(!problem.sees, "gradients of masks with gaps are not computed");
  std::vector<KeyId> keys;
  for (int seq = 0; seq < static_cast<int>(problem.k_lens.size()); ++seq) {
    for (int pos = 0; pos < problem.k_lens[seq]; ++pos) {
      for (int head = 0; head < problem.num_heads_kv; ++head) keys.push_back({seq, pos, head});
    }
  }
  return keys;
}

}  // namespace attnbench::reference
