// How the keys of tiles are split when a launch, or a sequence, has too few tiles for the GPU: functions for host and
// GPU.
//
// A sequence has equal splits: ranges of its KV blocks, the same for all of its tiles. So tiles that share a
// KV head read the same keys at the same time, and find them in L2. Each split of a tile is a work of its own
// and leaves a partial state: the sums over its keys. A kernel behind the attention kernel merges a tile's
// states in the order of their keys (merge_splits.cu).
//
// sm90_prefill finds the lengths of splits so that the launch ends soon (best_split). sm90_prefill_fixed takes lengths
// that do not depend on other sequences (most_fixed_splits), and has a list of works (prepare.cu).
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"

namespace attnbench::sm90_prefill {

/// What a work costs besides its KV blocks, in KV blocks: the wait for its first copies, and its state.
inline constexpr int32_t kWorkCost = 4;

/// What states and their merge cost a launch, in KV blocks: mostly code that no cache holds.
inline constexpr int32_t kMergeCost = 9;

/// Fewest KV blocks that a split is meant to have. Equal splits of a sequence may have fewer.
inline constexpr int32_t kLeastSplit = 4;

/// A *round* is as many works as there are multiprocessors. Launches of more than kMostWholeRounds rounds of
/// whole tiles are not split, and works are split into at most kMostRounds rounds.
inline constexpr int32_t kMostWholeRounds = 3;
inline constexpr int32_t kMostRounds = 5;

/// Most partial states of a launch, as a multiple of the multiprocessors: kMostRounds rounds of splits of the
/// full length, and a shorter one for each tile.
inline constexpr int32_t kStateRounds = kMostRounds + kMostWholeRounds;

/// A way to split, and the time that a launch then takes, in units of one KV block.
struct SplitChoice {
  int32_t length;  ///< the most KV blocks of a split; works of at most so many stay whole
  int32_t time;
};

/// The choice that fills 1 <= `rounds` <= kMostRounds rounds; with 0, all works stay whole. `works` > 0: the
/// launch's works if all were as long as the longest, which has `longest` KV blocks.
ATTNBENCH_HD constexpr SplitChoice split_into(int32_t rounds, float works, int32_t longest,
                                              int32_t multiprocessors) {
  if (rounds == 0) {
    const float needed = works / static_cast<float>(multiprocessors);
    const int32_t below = static_cast<int32_t>(needed);
    return {longest, (below + (static_cast<float>(below) < needed ? 1 : 0)) * (longest + kWorkCost)};
  }
  const int32_t splits = static_cast<int32_t>(static_cast<float>(rounds * multiprocessors) / works);
  const int32_t equal = splits < 2 ? longest : (longest + splits - 1) / splits;
  const int32_t length = equal < kLeastSplit ? kLeastSplit : equal;
  return {length, splits < 2 ? INT32_MAX / 8 : rounds * (length + kWorkCost) + kMergeCost};
}

/// split_into() for the number of rounds that makes the launch shortest.
ATTNBENCH_HD constexpr SplitChoice best_split(float works, int32_t longest, int32_t multiprocessors) {
  SplitChoice best = split_into(0, works, longest, multiprocessors);
  for (int32_t rounds = 1; rounds <= kMostRounds; ++rounds) {
    const SplitChoice choice = split_into(rounds, works, longest, multiprocessors);
    if (choice.time < best.time) best = choice;
  }
  return best;
}

/// sm90_prefill_fixed splits a sequence by its own lengths alone: its works fill at most kFixedWorks multiprocessors,
/// whatever GPU runs, and its splits are meant to have at least kLeastFixedSplit KV blocks. A sequence of few works leaves
/// most multiprocessors free: if it is split at all, its splits may have kLeastFewSplit blocks, as long as a tile has at
/// most kMostFewSplits. Only the last split may have fewer blocks.
inline constexpr int32_t kFixedWorks = 132;
inline constexpr int32_t kLeastFixedSplit = 32;
inline constexpr int32_t kFewWorks = 4;  ///< as of a model with few KV heads, or one on several GPUs
inline constexpr int32_t kLeastFewSplit = 16;
inline constexpr int32_t kMostFewSplits = 32;  ///< launches count states in 16 bits

/// Most splits of a tile of a sequence that has `works` > 0 tiles, counted for each head tile, of at most `blocks` KV
/// blocks. More works or fewer blocks never give more splits.
ATTNBENCH_HD constexpr int32_t most_fixed_splits(int32_t works, int32_t blocks) {
  const auto least = [](int32_t a, int32_t b) { return a < b ? a : b; };
  const int32_t splits = least(kFixedWorks / works, blocks / kLeastFixedSplit);
  if (works > kFewWorks || splits < 2) return splits;
  const int32_t of_few = least(kMostFewSplits, blocks / kLeastFewSplit);
  return splits > of_few ? splits : of_few;
}

/// Splits of a sequence whose last tile has `blocks` KV blocks; 1 if it has none.
ATTNBENCH_HD constexpr int32_t splits_of(int32_t blocks, int32_t length) {
  return blocks <= length ? 1 : (blocks + length - 1) / length;
}

/// The tiles of a sequence, and the splits of each: `splits` of `length` KV blocks.
struct Division {
  int32_t tiles, splits, length;
};

/// How sm90_prefill_fixed splits a sequence of `tiles` tiles for each of `head_tiles` head tiles, whose last one has
/// `blocks` KV blocks.
ATTNBENCH_HD constexpr Division fixed_division(int32_t tiles, int32_t head_tiles, int32_t blocks) {
  const int32_t most = tiles > 0 ? most_fixed_splits(tiles * head_tiles, blocks) : 1;
  if (most < 2) return {tiles, 1, blocks};
  const int32_t length = (blocks + most - 1) / most;
  return {tiles, splits_of(blocks, length), length};
}

}  // namespace attnbench::sm90_prefill
