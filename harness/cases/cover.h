// Covers: rows of an axis table such that every pair, or every triple, of values meets in some row. Most
// faults need one feature or two that meet; few need three (Kuhn, Wallace, Gallo: Software Fault
// Interactions, IEEE TSE 2004). A cover grows with its two or three longest axes; the product grows with all.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/cases/axis_rows.h"

namespace attnbench {

struct Cover {
  std::vector<AxisRow> rows;  ///< no row twice
  int64_t met = 0;            ///< tuples of `strength` values that meet in some row
  /// Tuples that never meet. impossible: no legal row holds the values. indifferent: in every legal row that
  /// holds them, one makes no difference. They are pairs, and triples that hold no such pair.
  std::vector<ValueTuple> impossible, indifferent;
  bool exact = false;  ///< both lists: every row was tried; false: only some rows were
};

/// Makes a cover of `strength` (1 to 3). Every tuple of that many values meets in some row in which each of
/// them makes a difference, unless no such row was found. Axes that no tuple needs are drawn in about half of
/// the rows; in the others they stay plain. Requires at least `strength` axes. The result depends on the
/// table and the seed only, not on the machine.
Cover cover_tuples(const AxisTable& table, std::size_t strength, uint64_t seed);

/// Draws different legal rows until `take` has returned true for `count` of them or no other row is found.
/// For each row, an axis and one of its points are drawn first, all with equal chance, then the rest. The
/// result depends on the table, the seed and the answers of `take` only, not on the machine.
void sample_rows(const AxisTable& table, int64_t count, uint64_t seed,
                 const std::function<bool(const AxisRow&)>& take);

}  // namespace attnbench
