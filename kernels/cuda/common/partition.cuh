// How the keys of a ragged batch are divided into equal parts: pure integer functions, for host and GPU.
//
// Words:
//   tile     tile_tokens neighbouring keys of a sequence (a number of the instance). A sequence has the tiles
//            that hold keys which its queries see.
//   unit     2^unit_shift tiles of a sequence. A sequence also counts `segment_cost` units for beginning it.
//            One without tiles counts one unit, so that some part writes its zeros.
//   line     the units of all sequences, one sequence after another: a launch's work for one KV head
//   part     a piece of the line: part i has the units [i * L, (i + 1) * L), L = units_per_part. It is
//            contiguous ("stream-K"), so that a part reads few sequences and a sequence lies in few parts.
//   segment  what one part does for one sequence
//   split    a segment of a sequence that has several. Each leaves a partial result; these are merged in the
//            order of the parts.
// Where a unit is several tiles, `tiles` means units in the functions from sequence_units() on.
//
// Where sequences have about the same length, shares are as equal and cut fewer sequences (struct Shares).
//
// Partial results are numbered 2 * part + slot. A part has at most two of them: slot 0 for the sequence in
// which it begins (in its middle or at its start), slot 1 for the one in which it stops. Sequences between
// these are whole.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/divisor.h"

namespace attnbench::hopper {

struct TileRange {
  int32_t begin;
  int32_t end;
};

/// Tiles of `tile_tokens` that hold the keys [begin, end).
ATTNBENCH_HD constexpr TileRange tiles_of_keys(int32_t begin, int32_t end, int32_t tile_tokens) {
  if (begin >= end) return {0, 0};
  return {begin / tile_tokens, (end - 1) / tile_tokens + 1};
}

/// Number of units, of 2^unit_shift tiles each, that `tiles` tiles make.
ATTNBENCH_HD constexpr int32_t units_of_tiles(int32_t tiles, int32_t unit_shift) {
  return (tiles + (1 << unit_shift) - 1) >> unit_shift;
}

struct Partition {
  int32_t units_per_part;  ///< L >= 1
  int32_t segment_cost;    ///< units counted for beginning a sequence, >= 0
};

/// Units of a sequence with `tiles` tiles; 0 for a sequence without queries.
ATTNBENCH_HD constexpr int32_t sequence_units(int32_t q_len, int32_t tiles, int32_t segment_cost) {
  if (q_len <= 0) return 0;
  return segment_cost + (tiles > 1 ? tiles : 1);
}

/// Cuts `total_units` into equal parts of at least `min_units` >= 1 units each, of which at most `parts` >= 1
/// are in use. `by_parts` divides by `parts`. total_units + parts must fit int32.
ATTNBENCH_HD constexpr Partition make_partition(int32_t total_units, int32_t parts, const Divisor& by_parts,
                                                int32_t min_units, int32_t segment_cost) {
  const int32_t equal = by_parts.divide(total_units + parts - 1);
  return {equal > min_units ? equal : min_units, segment_cost};
}

/// The number of parts, at most `parts` >= 1, that suits `batch` sequences of one length: each part then has whole
/// sequences, or an equal piece of one, so that fewer splits must be merged. At most one part in 16 is given up for
/// that: with so few blocks less the GPU reads as fast.
ATTNBENCH_HD constexpr int32_t fit_parts(int32_t parts, int32_t batch) {
  for (int32_t fewer = parts; fewer >= parts - parts / 16; --fewer) {
    if (batch > 0 && (batch % fewer == 0 || fewer % batch == 0)) return fewer;
  }
  return parts;
}

/// What one part does for one sequence: tiles [begin, end), counted from the sequence's first. The range is
/// empty where the sequence has no tiles.
struct Segment {
  bool exists;  ///< false: the part does nothing for it, not even the zeros of a sequence without tiles
  int32_t begin;
  int32_t end;
};

/// The segment of part `part` in a sequence that has queries and whose units begin at `first_unit`.
ATTNBENCH_HD constexpr Segment segment_of(const Partition& partition, int32_t part, int32_t first_unit,
                                          int32_t tiles) {
  const int32_t origin = first_unit + partition.segment_cost;  // unit of tile 0
  const int32_t width = tiles > 1 ? tiles : 1;
  int32_t begin = part * partition.units_per_part - origin;
  int32_t end = begin + partition.units_per_part;
  if (begin < 0) begin = 0;
  if (end > width) end = width;
  return {begin < end, begin < tiles ? begin : tiles, end < tiles ? end : tiles};
}

/// The segments of one sequence, which lie in the parts first_part, first_part + 1, ...
struct Splits {
  int32_t count;          ///< 1: nothing to merge
  int32_t first_part;     ///< the part of split 0
  int32_t first_partial;  ///< the number of split 0's partial result
};

ATTNBENCH_HD constexpr Splits splits_of(const Partition& partition, int32_t first_unit, int32_t tiles) {
  const int32_t length = partition.units_per_part;
  const int32_t origin = first_unit + partition.segment_cost;
  const int32_t width = tiles > 1 ? tiles : 1;
  const int32_t first = origin / length;
  const int32_t last = (origin + width - 1) / length;
  return {last - first + 1, first, 2 * first + (first * length >= first_unit ? 0 : 1)};
}

/// Step from the partial result of one split to that of the next, after split 0: a part has two.
inline constexpr int32_t kPartialStep = 2;

/// The number of the partial result of split `split`, 0 <= split < count. Splits after the first begin in the
/// middle of the sequence, so they use slot 0.
ATTNBENCH_HD constexpr int32_t partial_of(int32_t first_part, int32_t first_partial, int32_t split) {
  return split == 0 ? first_partial : 2 * (first_part + split);
}

/// Another division: each part has `sequences` whole sequences, or each sequence has `parts` parts of its own. One
/// of the two is 1. A part then has a single segment that is a split, or none.
struct Shares {
  int32_t sequences;
  int32_t parts;
};

/// The shares of `batch` sequences in at most `parts` >= 1 parts.
ATTNBENCH_HD constexpr Shares make_shares(int32_t batch, int32_t parts) {
  if (batch > parts) return {(batch + parts - 1) / parts, 1};
  return {1, batch > 0 ? parts / batch : 1};
}

/// The same with fewer parts, if splits of the longest sequence, which has `tiles` tiles, had less than `least`.
ATTNBENCH_HD constexpr Shares limit_shares(const Shares& shares, int32_t tiles, int32_t least) {
  if (shares.parts == 1) return shares;
  const int32_t equal = (tiles + shares.parts - 1) / shares.parts;
  const int32_t length = equal > least ? equal : least;
  const int32_t parts = (tiles + length - 1) / length;
  return {1, parts > 1 ? parts : 1};
}

/// The most units that a part may have, if the longest sequence has `tiles` tiles.
ATTNBENCH_HD constexpr int32_t most_units_of(const Shares& shares, int32_t tiles, int32_t segment_cost) {
  return shares.sequences * (segment_cost + (tiles + shares.parts - 1) / shares.parts);
}

/// The first sequence of part `part`.
ATTNBENCH_HD constexpr int32_t first_sequence_of(const Shares& shares, int32_t part) {
  return part / shares.parts * shares.sequences;
}

/// The splits of sequence `b`, which has `tiles` tiles.
ATTNBENCH_HD constexpr Splits splits_of(const Shares& shares, int32_t b, int32_t tiles) {
  const int32_t first = b / shares.sequences * shares.parts;
  const int32_t most = tiles > 1 ? tiles : 1;
  return {shares.parts < most ? shares.parts : most, first, 2 * first};
}

/// The segment of part `part` in a sequence with these splits and `tiles` tiles.
ATTNBENCH_HD constexpr Segment segment_of(const Splits& splits, int32_t part, int32_t tiles) {
  const int32_t split = part - splits.first_part;
  if (split < 0 || split >= splits.count) return {};
  // The first splits have a tile more.
  const int32_t each = tiles / splits.count, more = tiles % splits.count;
  const int32_t begin = split * each + (split < more ? split : more);
  return {true, begin, begin + each + (split < more ? 1 : 0)};
}

}  // namespace attnbench::hopper
