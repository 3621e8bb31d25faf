// Covers: rows of an axis table such that every pair, or every triple, of values meets in some row. Most
// faults need one feature or two that meet, few need three (Kuhn, Wallace, Gallo: Software Fault
// Interactions, IEEE TSE 2004), and a cover grows with its two or three longest axes where the product grows
// with all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/cases/axis_rows.h"

namespace attnbench {

struct Cover {
  std::vector<AxisRow> rows;  ///< no two alike
  int64_t met = 0;            ///< tuples of `strength` values that meet in some row
  /// Values that no legal row holds, and values of which one makes no difference in every legal row that
  /// holds them. They are pairs, and triples that hold no such pair.
  std::vector<ValueTuple> impossible, indifferent;
  bool exact = false;  ///< every row was tried for these two; else rows found by need, and drawn ones
};

/// Every tuple of `strength` values (1 to 3) of as many axes meets in some row, each of them making a
/// difference there, where a legal row for it was found. In about half of the rows, what no tuple asks
/// for is drawn, in the others it stays plain. Needs `strength` axes or more. The same for the same table and
/// seed on every machine.
Cover cover_tuples(const AxisTable& table, std::size_t strength, uint64_t seed);

/// Draws legal rows, no two alike, until `take` has returned true for `count` of them or no other row is
/// found. A drawn row holds a value that was drawn first, each as likely as others of its axis. The same for
/// the same table, seed and answers of `take` on every machine.
void sample_rows(const AxisTable& table, int64_t count, uint64_t seed,
                 const std::function<bool(const AxisRow&)>& take);

}  // namespace attnbench
