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

/// Keys of each split of a row tile but the last, which may have fewer: by num_splits if given, else by the sequence's own
/// lengths, and whole tiles.
int32_t split_keys(const AttentionParams& p, int64_t packed_rows, KeyBounds keys) {
  const int32_t all = std::max(1, keys.end - keys.begin);
  if (p.num_splits > 0) return (all - 1) / p.num_splits + 1;
  if (packed_rows > kSplitMaxRows) return all;
  const int32_t splits = (all - 1) / kSplitKeys + 1;
  return round_up((all - 1) / splits + 1, kKeyTile);
}

/// Sets `keys` and how they are split. Splits without keys, which a large num_splits would have, are left out.
void set_keys(const AttentionParams& p, int64_t packed_rows, KeyBounds keys, Task& task) {
  task.keys = keys;
  task.split_keys = split_keys(p, packed_rows, keys);
  task.splits = std::max(1, (keys.end - keys.begin - 1) / task.split_keys + 1);
}

/// Floats of the partial states of a row tile and one KV head.
int64_t state_floats(const AttentionParams& p, const Task& tile) {
  return int64_t{tile.splits} * tile.rows * partial_row_floats(p);
}

/// for_each_tile for sequence `b` of a launch with lists of keys. Rows of a tile are of one query, because they share
/// a list.
template <class F>
void for_each_listed_tile(const AttentionParams& p, int32_t b, const SeqRange& range, F&& f) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  for (int32_t token = 0; token < range.q_len; ++token) {
    for (int32_t first = 0; first < group; first += kFewRows) {
      Task task{};
      task.seq = b;
      task.range = range;
      task.row_begin = token * group + first;
      task.rows = std::min(kFewRows, group - first);
      set_keys(p, group, {0, key_list_length(p, int64_t{range.q_begin} + token)}, task);
      task.few_rows = true;
      f(task);
    }
  }
}

/// Calls f(task) for each row tile of each sequence, before splits and heads are cut.
template <class F>
void for_each_tile(const AttentionParams& p, F&& f) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange range = seq_range(p, b);
    const int64_t packed_rows = int64_t{range.q_len} * group;
    if (p.features & kTopkIndices) {
      for_each_listed_tile(p, b, range, f);
      continue;
    }
    for (int64_t row = 0; row < packed_rows; row += kRowTile) {
      const int32_t rows = static_cast<int32_t>(std::min<int64_t>(kRowTile, packed_rows - row));
      const int32_t first = static_cast<int32_t>(row / group);
      const int32_t last = static_cast<int32_t>((row + rows - 1) / group);
      Task task{};
      task.seq = b;
      task.range = range;
      task.row_begin = static_cast<int32_t>(row);
      task.rows = rows;
      set_keys(p, packed_rows, visible_keys_of_rows(p, first, last, range.q_len, range.k_len), task);
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
  schedule.partial_floats = schedule.thread_floats = 0;
  schedule_probs(p, schedule.probs);

  int64_t few_row_tasks = 0, tiles_by_head = 0, states = 0;
  int32_t few_rows = 1;
  for_each_tile(p, [&](const Task& tile) {
    tiles_by_head += tile.few_rows ? 1 : p.num_heads_kv;
    if (tile.splits > 1) states += p.num_heads_kv * state_floats(p, tile);
    if (!tile.few_rows) return;
    few_row_tasks += tile.splits;
    few_rows = std::max(few_rows, tile.rows);
  });
  const bool lists = (p.features & kTopkIndices) != 0;  // each KV head has its own
  const int32_t few_row_heads = lists ? 1 : heads_per_task(p, few_row_tasks, few_rows, threads);

  const bool one_by_one =
      states * int64_t{sizeof(float)} > kPartialBytes && tiles_by_head >= int64_t{4} * threads;

  for_each_tile(p, [&](Task tile) {
    tile.all_splits = one_by_one && tile.splits > 1;
    if (tile.splits > 1 && !one_by_one) {
      tile.partial = schedule.partial_floats;
      schedule.partial_floats += p.num_heads_kv * state_floats(p, tile);
      for (int32_t h = 0; h < p.num_heads_kv; ++h) schedule.merges.push_back({tile, h});
    }
    for (int32_t s = 0; s < (one_by_one ? 1 : tile.splits); ++s) {
      Task task = one_by_one ? tile : split_of(tile, s);
      const int32_t heads = task.few_rows ? few_row_heads : 1;
      for (int32_t h = 0; h < p.num_heads_kv; h += heads) {
        task.head_begin = h;
        task.head_count = std::min(heads, p.num_heads_kv - h);
        task.cost = int64_t{task.keys.end - task.keys.begin} * task.head_count * (task.rows + 4);
        if (task.all_splits) {
          task.partial =
              -h * state_floats(p, task);  // its first head's states are the first in the thread's memory
          schedule.thread_floats = std::max(schedule.thread_floats, task.head_count * state_floats(p, task));
        }
        schedule.tasks.push_back(task);
      }
    }
  });
  std::sort(schedule.tasks.begin(), schedule.tasks.end(),
            [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

}  // namespace attnbench::cpu
