// What the host knows of a launch before it runs: how its keys may be divided, where partial results lie in
// the workspace, and which plans workspaces have.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/common/partition.cuh"
#include "kernels/cuda/sm90_decode/launch.h"

namespace attnbench::sm90_decode {

/// Query rows of the longest sequence, per KV head.
inline int64_t max_rows(const AttentionParams& p) {
  return int64_t{std::max(p.max_seqlen_q, 1)} * (p.num_heads_q / p.num_heads_kv);
}

/// Tiles of a sequence that is as long as the longest.
TileRange guess_tiles(const Instance& instance, const AttentionParams& p);

/// The partition as far as the host knows it: every sequence is taken to be as long as the longest.
struct Guess {
  int32_t parts;
  int32_t partials;       ///< partial results per KV head that there is room for; exact, not guessed
  int32_t waiting_parts;  ///< parts that have places for states
  int32_t tiles;          ///< tiles of a sequence
  int32_t first_tile;     ///< number of a sequence's first tile
  int64_t sequence_units;
  int64_t total_units;
  int64_t most_units;  ///< exact: the most units of any batch with these maxima
};

Guess guess(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
            const Division& division);

/// Offsets and sizes in the workspace, in bytes. A plan prepares everything before the partial results.
struct Workspace {
  std::size_t counters_bytes;  ///< counters; the blocks' steps come last
  std::size_t states;          ///< O of the states, then their LSE
  std::size_t state_lse;
  std::size_t states_bytes;
  std::size_t partial_lse;
  std::size_t partial_out;
  std::size_t bytes;
};

Workspace workspace_of(const AttentionParams& p, const Guess& g);

}  // namespace attnbench::sm90_decode
