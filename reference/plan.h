// Which rows are computed together: the requested rows sorted, their visible keys, and the tiles of work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/reference.h"

namespace attnbench::reference {

/// Keys begin..end-1; none where end <= begin.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return end <= begin; }
};

/// The keys that query `pos` of sequence `seq` sees: the rule of Problem, clipped to [0, k_lens[seq]).
KeyRange visible_keys(const Problem& problem, int seq, int pos);

/// Rows first..last-1 of Plan::rows, all of one sequence and KV head and either all seeing keys or all empty.
struct Tile {
  int64_t first = 0;
  int64_t last = 0;
  KeyRange keys;      ///< union of the rows' visible keys, without a gap
  double cost = 0.0;  ///< in visible pairs; loading a key and a value counts as kLoadCost pairs
};

struct Plan {
  std::vector<RowId> rows;        ///< by (seq, KV head, pos, head): visible ranges never move left in a tile
  std::vector<KeyRange> visible;  ///< of each row
  std::vector<Tile> tiles;        ///< dearest first
};

/// Rows of a tile at most: enough to run the products at the speed of square ones.
inline constexpr int64_t kMaxTileRows = 256;
/// Scores that a tile may hold, 32 MiB. One row is always allowed, whatever its length.
inline constexpr int64_t kMaxTileScores = int64_t{4} << 20;
/// What loading one key and one value costs, in pairs of the same head_dim.
inline constexpr double kLoadCost = 16.0;

/// Tiles for `num_threads` threads: as large as possible unless smaller ones finish earlier.
Plan make_plan(const Problem& problem, std::span<const RowId> rows, int num_threads);

}  // namespace attnbench::reference
