// How the keys of a ragged batch are divided into equal parts: pure integer functions, for host and GPU.
//
// The keys that a sequence's queries see are cut into tiles of as many tokens as the kernel's instantiation
// says. A launch's work, for one KV head, is a line of *units*: sequence by sequence, `segment_cost` units
// for beginning it and one per tile (one also where it has none, so that somebody writes its zeros). Part i
// takes the units [i * L, (i + 1) * L), L = units_per_part: contiguous, so that a part reads few sequences
// and a sequence lies in few parts
// ("stream-K"). What a part does for one sequence is a *segment*. A sequence of several segments is *split*:
// each leaves a partial result, which are merged in the order of the parts.
//
// Partial results are numbered 2 * part + slot. A part has at most two: of the sequence that it begins in the
// middle or at the start of (slot 0), and of the one that it stops in (slot 1); those between are whole.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/divisor.h"

namespace attnbench::sm90_decode {

struct TileRange {
  int32_t begin;
  int32_t end;
};

/// Tiles of `tile_tokens` that hold the keys [begin, end).
ATTNBENCH_HD constexpr TileRange tiles_of_keys(int32_t begin, int32_t end, int32_t tile_tokens) {
  if (begin >= end) return {0, 0};
  return {begin / tile_tokens, (end - 1) / tile_tokens + 1};
}

/// Units of `tiles` tiles, 2^unit_shift each.
ATTNBENCH_HD constexpr int32_t units_of_tiles(int32_t tiles, int32_t unit_shift) {
  return (tiles + (1 << unit_shift) - 1) >> unit_shift;
}

struct Partition {
  int32_t units_per_part;  ///< L >= 1
  int32_t segment_cost;    ///< units that beginning a sequence counts as, >= 0
};

/// Units of a sequence with `tiles` tiles; of one without queries 0.
ATTNBENCH_HD constexpr int32_t sequence_units(int32_t q_len, int32_t tiles, int32_t segment_cost) {
  if (q_len <= 0) return 0;
  return segment_cost + (tiles > 1 ? tiles : 1);
}

/// Equal parts of at least `min_units` >= 1 units each, at most `parts` >= 1 of them in use; `by_parts`
/// divides by `parts`. total_units + parts must fit int32.
ATTNBENCH_HD constexpr Partition make_partition(int32_t total_units, int32_t parts, const Divisor& by_parts,
                                                int32_t min_units, int32_t segment_cost) {
  const int32_t equal = by_parts.divide(total_units + parts - 1);
  return {equal > min_units ? equal : min_units, segment_cost};
}

/// What one part does for one sequence: tiles [begin, end), counted from the sequence's first; an empty range
/// where it has none.
struct Segment {
  bool exists;  ///< false: nothing, not even the zeros of a sequence without tiles
  int32_t begin;
  int32_t end;
};

/// The segment of part `part` in the sequence whose units begin at `first_unit`; it has queries.
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

/// From the partial result of one split to the next, but for split 0: a part has two.
inline constexpr int32_t kPartialStep = 2;

/// The number of the partial result of split `split`, 0 <= split < count. Later splits begin in the middle
/// of the sequence: slot 0.
ATTNBENCH_HD constexpr int32_t partial_of(int32_t first_part, int32_t first_partial, int32_t split) {
  return split == 0 ? first_partial : 2 * (first_part + split);
}

}  // namespace attnbench::sm90_decode
