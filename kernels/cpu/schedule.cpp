#include "kernels/cpu/schedule.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace attnbench::cpu {
namespace {

/// Limit for the accumulators of all heads of a few-row task, so that they fill only a part of a core's own
/// cache.
constexpr int64_t kHeadGroupBytes = 64 * 1024;

/// KV heads per few-row task. Many heads let a task read a tile of keys over whole tokens of the (token,
/// head) layout. But there must be several tasks for every thread.
int32_t heads_per_task(const AttentionParams& p, int64_t row_tiles, int32_t rows, int threads) {
  const int64_t head_bytes = int64_t{rows} * round_up(p.head_dim_v, kPanel) * 4;
  int32_t heads = p.num_heads_kv;
  while (heads > 1 && (heads * head_bytes > kHeadGroupBytes ||
                       row_tiles * ((p.num_heads_kv + heads - 1) / heads) < int64_t{4} * threads)) {
    heads = (heads + 1) / 2;
  }
  return heads;
}

/// Number of splits of a row tile: num_splits if given, else a function of the sequence's own lengths.
int32_t count_splits(const AttentionParams& p, int64_t packed_rows, KeyBounds keys) {
  if (p.num_splits > 0) return p.num_splits;
  if (packed_rows > kSplitMaxRows) return 1;
  return std::max(1, (keys.end - keys.begin - 1) / kSplitKeys + 1);
}

/// Calls f(task) for each row tile of each sequence, before splits and heads are cut.
template <class F>
void for_each_tile(const AttentionParams& p, F&& f) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange range = seq_range(p, b);
    const int64_t packed_rows = int64_t{range.q_len} * group;
    for (int64_t row = 0; row < packed_rows; row += kRowTile) {
      const int32_t rows = static_cast<int32_t>(std::min<int64_t>(kRowTile, packed_rows - row));
      const int32_t first = static_cast<int32_t>(row / group);
      const int32_t last = static_cast<int32_t>((row + rows - 1) / group);
      Task task{};
      task.seq = b;
      task.range = range;
      task.row_begin = static_cast<int32_t>(row);
      task.rows = rows;
      task.keys = visible_keys_of_rows(p, first, last, range.q_len, range.k_len);
      task.splits = count_splits(p, packed_rows, task.keys);
      // The decode path multiplies no query with V.
      task.few_rows = packed_rows <= kFewRows && !(p.features & kQv);
      f(task);
    }
  }
}

/// Makes the tasks of the probabilities, in the order of their rows.
void schedule_probs(const AttentionParams& p, std::vector<Task>& tasks) {
  tasks.clear();
  if (!(p.features & kProbs)) return;
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  for (int32_t b = 0; b < p.batch; ++b) {
    Task task{};
    task.seq = b;
    task.range = seq_range(p, b);
    task.head_count = task.splits = 1;
    const int64_t packed_rows = int64_t{task.range.q_len} * group;
    for (int64_t row = 0; row < packed_rows; row += kProbsRows) {
      task.row_begin = static_cast<int32_t>(row);
      task.rows = static_cast<int32_t>(std::min<int64_t>(kProbsRows, packed_rows - row));
      task.keys = visible_keys_of_rows(p, static_cast<int32_t>(row / group),
                                       static_cast<int32_t>((row + task.rows - 1) / group), task.range.q_len,
                                       task.range.k_len);
      for (task.head_begin = 0; task.head_begin < p.num_heads_kv; ++task.head_begin) tasks.push_back(task);
    }
  }
}

}  // namespace

void make_schedule(const AttentionParams& p, int threads, Schedule& schedule) {
  schedule.tasks.clear();
  schedule.merges.clear();
  schedule.partial_floats = 0;
  schedule_probs(p, schedule.probs);

  int64_t few_row_tasks = 0;
  int32_t few_rows = 1;
  for_each_tile(p, [&](const Task& tile) {
    if (!tile.few_rows) return;
    few_row_tasks += tile.splits;
    few_rows = std::max(few_rows, tile.rows);
  });
  const int32_t few_row_heads = heads_per_task(p, few_row_tasks, few_rows, threads);

  for_each_tile(p, [&](Task task) {
    if (task.splits > 1) {
      task.partial = schedule.partial_floats;
      schedule.partial_floats += int64_t{p.num_heads_kv} * task.splits * task.rows * partial_row_floats(p);
      for (int32_t h = 0; h < p.num_heads_kv; ++h) schedule.merges.push_back({task, h});
    }
    // Splits have equal length. If the kernel chooses their number, they also have whole tiles.
    const KeyBounds all = task.keys;
    const int32_t equal = (all.end - all.begin + task.splits - 1) / task.splits;
    const int32_t share = p.num_splits > 0 ? equal : round_up(equal, kKeyTile);
    for (int32_t s = 0; s < task.splits; ++s) {
      task.split = s;
      task.keys.begin = std::min(all.end, all.begin + s * share);
      task.keys.end = std::min(all.end, task.keys.begin + share);
      const int32_t heads = task.few_rows ? few_row_heads : 1;
      for (int32_t h = 0; h < p.num_heads_kv; h += heads) {
        task.head_begin = h;
        task.head_count = std::min(heads, p.num_heads_kv - h);
        task.cost = int64_t{task.keys.end - task.keys.begin} * task.head_count * (task.rows + 4);
        schedule.tasks.push_back(task);
      }
    }
  });
  std::sort(schedule.tasks.begin(), schedule.tasks.end(),
            [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

}  // namespace attnbench::cpu
