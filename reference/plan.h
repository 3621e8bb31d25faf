// The plan of the work: the requested rows sorted, their visible keys, and tiles of rows computed together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/reference.h"

namespace attnbench::reference {

/// Keys begin..end-1; none if end <= begin.
struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return end <= begin; }
};

/// The keys that query `pos` of sequence `seq` sees, by the rule of Problem, clipped to [0, k_lens[seq]).
KeyRange visible_keys(const Problem& problem, int seq, int pos);
/// Where query `pos` of sequence `seq` is on the key axis.
int64_t diagonal(const Problem& problem, int seq, int pos);

/// Rows first..last-1 of Plan::rows. All belong to one sequence and KV head; all see keys or none does.
struct Tile {
  int64_t first = 0;
  int64_t last = 0;
  KeyRange keys;      ///< union of the rows' visible keys, without a gap
  double cost = 0.0;  ///< in visible pairs; loading a key and its value counts as kLoadCost pairs
};

struct Plan {
  /// Sorted by (seq, KV head, pos, head), so that visible ranges never move left within a tile.
  std::vector<RowId> rows;
  std::vector<KeyRange> visible;  ///< of each row
  std::vector<Tile> tiles;        ///< in order of falling cost
};

/// Most rows of a tile: enough for products as fast as those of square matrices.
inline constexpr int64_t kMaxTileRows = 256;
/// Most scores of a tile, 32 MiB. A tile of one row may have more.
inline constexpr int64_t kMaxTileScores = int64_t{4} << 20;
/// Cost of loading one key and its value, in visible pairs of the same head_dim.
inline constexpr double kLoadCost = 16.0;

/// Keys begin..end-1 of a tile, and its rows first..last-1 that see at least one of them.
struct KeyBlock {
  int64_t begin, end, first, last;
};

/// Most keys of a block. A block that some row sees only in part is shorter, so that less of a product is
/// wasted on masked keys.
inline constexpr int64_t kMaxBlockKeys = 256;

/// Cuts the keys of a tile into blocks. visible: of each row of the tile, never moving left from row to row.
void cut_keys(std::span<const KeyRange> visible, const KeyRange& keys, std::vector<KeyBlock>& blocks);

/// Plans tiles for `num_threads` threads: as large as possible, unless smaller ones finish clearly earlier.
Plan make_plan(const Problem& problem, std::span<const RowId> rows, int num_threads);

}  // namespace attnbench::reference
