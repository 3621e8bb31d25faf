#include "reference/plan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace attnbench::reference {
namespace {

constexpr int64_t kEdgeKeys = 64;  ///< keys of a block that some row sees only in part

// Greedy: a tile takes the next row as long as the row has the same sequence and KV head. A row that shares
// no key with the tile starts a new tile, because rows are computed together only to load common keys once.
std::vector<Tile> cut_tiles(const Problem& problem, const Plan& plan, int64_t max_rows) {
  const int ratio = problem.num_heads_q / problem.num_heads_kv;
  std::vector<Tile> tiles;
  const auto finish = [&] {
    if (!tiles.empty())
      tiles.back().cost += kLoadCost * static_cast<double>(tiles.back().keys.end - tiles.back().keys.begin);
  };
  for (int64_t i = 0; i < static_cast<int64_t>(plan.rows.size()); ++i) {
    const RowId& row = plan.rows[i];
    const KeyRange keys = plan.visible[i];
    bool joins = false;
    if (!tiles.empty()) {
      const Tile& tile = tiles.back();
      const RowId& head_row = plan.rows[tile.first];
      const int64_t count = tile.last - tile.first + 1;
      joins = row.seq == head_row.seq && row.head / ratio == head_row.head / ratio && count <= max_rows &&
              keys.empty() == tile.keys.empty() &&
              (keys.empty() ||
               (keys.begin <= tile.keys.end && count * (keys.end - tile.keys.begin) <= kMaxTileScores));
    }
    if (!joins) {
      finish();
      tiles.push_back({i, i, keys, 0.0});
    }
    Tile& tile = tiles.back();
    tile.last = i + 1;
    tile.keys.end = std::max(tile.keys.end, keys.end);
    tile.cost += static_cast<double>(keys.end - keys.begin);
  }
  finish();
  return tiles;
}

// Time at which the last thread ends, if each free thread takes the next tile. `tiles` are in falling cost.
double finish_time(const std::vector<Tile>& tiles, int num_threads) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < num_threads; ++i) free_at.push(0.0);
  double last = 0.0;
  for (const Tile& tile : tiles) {
    const double done = free_at.top() + tile.cost;
    free_at.pop();
    free_at.push(done);
    last = std::max(last, done);
  }
  return last;
}

}  // namespace

int64_t diagonal(const Problem& problem, int seq, int pos) {
  return problem.top_left ? pos : int64_t{pos} + problem.k_lens[seq] - problem.q_lens[seq];
}

KeyRange visible_keys(const Problem& problem, int seq, int pos) {
  const int64_t k_len = problem.k_lens[seq];
  const int64_t diag = diagonal(problem, seq, pos);
  const int64_t right = problem.causal ? 0 : problem.window_right;
  KeyRange keys{0, problem.k_ends.empty() ? k_len : std::min<int64_t>(k_len, problem.k_ends[seq])};
  if (problem.window_left >= 0) keys.begin = std::max<int64_t>(0, diag - problem.window_left);
  if (right >= 0) keys.end = std::min(keys.end, diag + right + 1);
  if (problem.attention_chunk > 0) {
    if (diag < 0) return {};
    const int64_t before = diag % problem.attention_chunk;  // keys of the chunk before the diagonal
    keys.begin = std::max(keys.begin, diag - before);
    keys.end = std::min(keys.end, diag - before + problem.attention_chunk);
  }
  if (keys.empty()) return {};
  return keys;
}

// Visible ranges never move left from row to row, so the rows that see a block are consecutive.
void cut_keys(std::span<const KeyRange> visible, const KeyRange& keys, std::vector<KeyBlock>& blocks) {
  blocks.clear();
  const auto num_rows = static_cast<int64_t>(visible.size());
  int64_t first = 0;
  for (int64_t begin = keys.begin; begin < keys.end;) {
    while (first < num_rows && visible[first].end <= begin) ++first;
    const auto rows_until = [&](int64_t end) {
      int64_t last = first;
      while (last < num_rows && visible[last].begin < end) ++last;
      return last;
    };
    int64_t end = std::min(begin + kMaxBlockKeys, keys.end);
    int64_t last = rows_until(end);
    if (visible[first].end < end || visible[last - 1].begin > begin) {
      end = std::min(begin + kEdgeKeys, keys.end);
      last = rows_until(end);
    }
    blocks.push_back({begin, end, first, last});
    begin = end;
  }
}

Plan make_plan(const Problem& problem, std::span<const RowId> rows, int num_threads) {
  const int ratio = problem.num_heads_q / problem.num_heads_kv;
  Plan plan;
  plan.rows.assign(rows.begin(), rows.end());
  const auto key = [&](const RowId& r) { return std::make_tuple(r.seq, r.head / ratio, r.pos, r.head); };
  std::sort(plan.rows.begin(), plan.rows.end(),
            [&](const RowId& a, const RowId& b) { return key(a) < key(b); });
  plan.visible.reserve(plan.rows.size());
  for (const RowId& r : plan.rows) plan.visible.push_back(visible_keys(problem, r.seq, r.pos));

  // Smaller tiles load keys more often, but share the work better. A smaller size is taken if it ends the
  // work a tenth earlier.
  double best = 0.0;
  for (int64_t max_rows = kMaxTileRows; max_rows >= 1; max_rows /= 2) {
    std::vector<Tile> tiles = cut_tiles(problem, plan, max_rows);
    std::stable_sort(tiles.begin(), tiles.end(),
                     [](const Tile& a, const Tile& b) { return a.cost > b.cost; });
    const double time = finish_time(tiles, num_threads);
    if (max_rows == kMaxTileRows || time < 0.9 * best) {
      best = time;
      plan.tiles = std::move(tiles);
    }
    double total = 0.0;
    for (const Tile& tile : plan.tiles) total += tile.cost;
    if (best * num_threads <= 1.1 * total) break;  // shared well enough
  }
  return plan;
}

}  // namespace attnbench::reference
