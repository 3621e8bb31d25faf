// Pairwise cover: rows of an axis table such that every pair of values of two axes meets in some row. Most
// faults need one feature or two that meet (Kuhn, Wallace, Gallo: Software Fault Interactions, IEEE TSE
// 2004), and the cover grows with the two longest axes where the product grows with all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace attnbench {

/// One point per axis.
using AxisRow = std::vector<std::size_t>;

struct ValuePair {
  std::size_t axis_a, point_a, axis_b, point_b;  ///< axis_a < axis_b
};

struct PairwiseCover {
  std::vector<AxisRow> rows;
  int64_t pairs = 0;                  ///< pairs of values that meet in some row
  std::vector<ValuePair> impossible;  ///< pairs for which no row was found
};

/// `points`: points of each axis. `legal(row)`: whether the row may be used. `live(row, axis)`: whether the
/// axis makes a difference in a legal row (a block size does not where nothing is paged); pairs with an axis
/// that does not are not met by that row. Put the plainest value of an axis first: rows are built from the
/// row of first points (or a legal one near it) by what a value needs of other axes to be legal and to make a
/// difference. A pair counts as impossible after the needs of both of its values, alone and with any third
/// value and its needs, and after drawn rows: where contradictions are many, a rare pair may be missed.
/// Deterministic.
PairwiseCover pairwise_cover(const std::vector<std::size_t>& points,
                             const std::function<bool(const AxisRow&)>& legal,
                             const std::function<bool(const AxisRow&, std::size_t axis)>& live);

}  // namespace attnbench
