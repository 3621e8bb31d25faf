// How a launch divides keys that all sequences share (AttentionParams::shared_prefix): functions for host and
// GPU.
//
// The queries of all sequences are rows of the same tiles over the prefix, which is split, so each key of it
// is read once for a tile instead of once for a sequence. Each sequence's other keys, its suffix, are one
// more work for each head tile, or a decode of the guests of sm90_mixed. All leave partial states. Those of
// each row are merged behind the attention kernel (merge_splits.cu), or in it by sm90_mixed (row_merger.cuh):
// the prefix's splits in the order of their keys, then the suffix.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"

namespace attnbench::sm90_prefill {

/// A cascade costs a longer start and the merge, so it must spare so many bytes of reads: some 15 us on an
/// H100.
inline constexpr int64_t kLeastSpared = 48 << 20;

/// Fewest KV blocks of a prefix's split.
inline constexpr int32_t kLeastPrefixSplit = 8;

/// Most rounds of the prefix's splits: works of one multiprocessor after another.
inline constexpr int32_t kPrefixRounds = 2;

/// What a split costs besides its keys, in KV blocks.
inline constexpr int32_t kPrefixSplitCost = 1;

/// Splits of a prefix of `blocks` KV blocks, the same for all of its `works` (query tiles times head tiles): as
/// many as make the multiprocessors end soonest. 0 if there is no prefix.
ATTNBENCH_HD constexpr int32_t prefix_splits(int32_t blocks, int32_t works, int32_t multiprocessors) {
  if (blocks <= 0 || works <= 0) return 0;
  const int32_t most = blocks < kLeastPrefixSplit ? 1 : blocks / kLeastPrefixSplit;
  int32_t best = 1, least = INT32_MAX;
  for (int32_t splits = 1; splits <= most; ++splits) {
    const int32_t rounds = (works * splits + multiprocessors - 1) / multiprocessors;
    if (splits > 1 && rounds > kPrefixRounds) break;
    const int32_t blocks_in_turn = rounds * ((blocks + splits - 1) / splits + kPrefixSplitCost);
    if (blocks_in_turn < least) {
      least = blocks_in_turn;
      best = splits;
    }
  }
  return best;
}

/// Bound of the states of a prefix per head tile, over all numbers of query tiles up to `tiles`.
ATTNBENCH_HD constexpr int64_t most_prefix_states(int64_t tiles, int32_t head_tiles,
                                                  int32_t multiprocessors) {
  return tiles + (kPrefixRounds * multiprocessors + head_tiles - 1) / head_tiles;
}

}  // namespace attnbench::sm90_prefill
