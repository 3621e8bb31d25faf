// How a launch is cut into tasks.
//
// A task is a run of query rows of one sequence and KV head against a range of keys. Query rows are counted
// "packed": row r of a KV head is token r / G, query head kv_head * G + r % G, with G = num_heads_q /
// num_heads_kv. So all query heads that share keys share one pass over them.
//
// Where rows and keys are cut depends only on the sequence's own lengths, never on the other sequences or on
// the number of threads. So results are batch-invariant and deterministic. The number of KV heads per few-row
// task does depend on the number of threads. It changes no bit of the result, because heads do not interact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"

namespace attnbench::cpu {

inline constexpr int kRowTile = 96;        ///< packed rows of a task of many rows
inline constexpr int kKeyTile = 128;       ///< keys processed at once, a multiple of kPanel
inline constexpr int kFewRows = 16;        ///< most packed rows that take the few-row path
inline constexpr int kSplitMaxRows = 384;  ///< most packed rows with split keys; more are parallel enough
inline constexpr int kProbsRows = 4;       ///< rows of a task that computes probabilities
inline constexpr int kSplitKeys = 2048;    ///< longest split, in keys

/// Partial states of a launch, in bytes. If there are more, and tiles enough for all threads, a tile's splits run one
/// after the other, so that few states are there at a time.
inline constexpr int64_t kPartialBytes = int64_t{256} << 20;

struct Task {
  int32_t seq;
  SeqRange range;
  int32_t head_begin;  ///< first KV head
  int32_t head_count;  ///< 1 unless few_rows
  int32_t row_begin;   ///< first packed row
  int32_t rows;
  /// Smallest range that holds all keys that these rows see, or this split's part of it. With kTopkIndices: entries
  /// of the list of the rows' one query.
  KeyBounds keys;
  int32_t split_keys;  ///< keys of a split
  int32_t split;
  int32_t splits;   ///< 1: the task writes O and LSE itself
  bool all_splits;  ///< the task runs its splits one after the other and merges them, in memory of its thread
  int64_t partial;  ///< splits > 1: offset in floats of this row tile's partial states
  bool few_rows;
  int64_t cost;
};

/// The partial states of one row tile and KV head, to be merged.
struct Merge {
  Task tile;  ///< any task of the row tile
  int32_t head;
};

struct Schedule {
  std::vector<Task> tasks;  ///< longest first
  std::vector<Merge> merges;
  std::vector<Task> probs;  ///< kProbs: up to kProbsRows rows of a KV head against all their keys
  int64_t partial_floats = 0;
  int64_t thread_floats = 0;  ///< partial states of the largest task with all_splits
};

/// The task of one split of a row tile.
inline Task split_of(Task tile, int32_t split) {
  tile.split = split;
  tile.keys.begin = std::min(tile.keys.end, tile.keys.begin + split * tile.split_keys);
  tile.keys.end = std::min(tile.keys.end, tile.keys.begin + tile.split_keys);
  return tile;
}

/// Floats of one row's partial state: accumulators, then m and l.
inline int32_t partial_row_floats(const AttentionParams& p) { return p.head_dim_v + 2; }

/// Offset in floats of the state of `row` (0 <= row < task.rows) of KV head `head`, split `split`.
inline int64_t partial_offset(const AttentionParams& p, const Task& task, int32_t head, int32_t split,
                              int32_t row) {
  const int64_t slot = static_cast<int64_t>(head) * task.splits + split;
  return task.partial + (slot * task.rows + row) * partial_row_floats(p);
}

/// Cuts a launch for `threads` threads into `schedule` and reuses its memory.
void make_schedule(const AttentionParams& p, int threads, Schedule& schedule);

}  // namespace attnbench::cpu
