// What the host knows of a launch before it runs: how its keys may be divided, where partial results lie in
// the workspace, and which plans workspaces have.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/sm90_decode/launch.h"
#include "kernels/cuda/sm90_decode/partition.cuh"

namespace attnbench::sm90_decode {

/// Query rows of the longest sequence, per KV head.
inline int64_t max_rows(const AttentionParams& p) {
  return int64_t{std::max(p.max_seqlen_q, 1)} * (p.num_heads_q / p.num_heads_kv);
}

/// Tiles of a sequence, as if it were as long as the longest.
TileRange guess_tiles(const Instance& instance, const AttentionParams& p);

/// The partition as far as the host knows it, as if every sequence were as long as the longest.
struct Guess {
  int32_t parts;
  int32_t partials;       ///< places for partial results per KV head; no guess
  int32_t waiting_parts;  ///< parts that have places for states
  int32_t tiles;          ///< of a sequence
  int32_t first_tile;
  int64_t sequence_units;
  int64_t total_units;
  int64_t most_units;  ///< no guess: no batch of these maxima has more
};

Guess guess(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
            const Division& division);

/// Where things lie in the workspace, in bytes; those up to the partial results are what a plan prepares.
struct Workspace {
  std::size_t counters_bytes;  ///< the blocks' steps last
  std::size_t states;          ///< O, and then the LSE
  std::size_t state_lse;
  std::size_t states_bytes;
  std::size_t partial_lse;
  std::size_t partial_out;
  std::size_t bytes;
};

Workspace workspace_of(const AttentionParams& p, const Guess& g);

}  // namespace attnbench::sm90_decode
