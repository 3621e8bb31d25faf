// Rows of a table of axes, one point per axis: which are legal, and which hold given values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/contract/philox.h"

namespace attnbench {

/// One point per axis.
using AxisRow = std::vector<std::size_t>;

struct AxisValue {
  std::size_t axis, point;
  bool operator==(const AxisValue&) const = default;
};

/// Values of different axes, in the order of the axes.
using ValueTuple = std::vector<AxisValue>;

struct AxisTable {
  std::vector<std::size_t> points;  ///< number of points of each axis; point 0 is the plainest
  /// Whether the row may be used.
  std::function<bool(const AxisRow&)> legal;
  /// Whether the axis makes a difference in a legal row. A block size makes none if nothing is paged.
  std::function<bool(const AxisRow&, std::size_t axis)> live;
};

/// Random whole numbers by Philox, the same on every machine.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  /// A number from 0 to n - 1; n is 2^32 at most.
  std::size_t below(std::size_t n);
  template <class T>
  void shuffle(std::vector<T>& v) {
    for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }

 private:
  uint64_t seed_;
  uint32_t next_ = 0;
};

/// Finds rows that hold given values. The search starts at the plainest legal row and sets what each value
/// needs on other axes to be legal and to make a difference. If that finds no row, all rows are tried if they
/// are few, else random ones.
class RowFinder {
 public:
  /// Keeps a reference to both.
  RowFinder(const AxisTable& table, Draws& draws);

  struct Found {
    bool legal = false;          ///< some legal row holds the values
    std::optional<AxisRow> row;  ///< a row in which each of the values makes a difference
  };
  /// Searches a row that holds the values. With `legal_is_enough`, any legal row with them is taken.
  Found holding(const ValueTuple& values, bool legal_is_enough = false);

  /// Whether the row is legal, holds the values, and each of them makes a difference in it.
  bool works(const AxisRow& row, const ValueTuple& values) const;

  /// Whether all rows can be tried. Then values that were not found together are in no row.
  bool is_exact() const { return exact_; }
  /// All legal rows, the last axis fastest. Empty unless is_exact().
  const std::vector<AxisRow>& legal_rows();

 private:
  /// Values of other axes that one value needs.
  using Needs = std::vector<AxisValue>;
  using Attempt = std::function<bool(const AxisRow&)>;  // true: the search is over

  template <class Visit>
  void for_each_value(const Visit& visit) const {
    for (std::size_t a = 0; a < table_.points.size(); ++a) {
      for (std::size_t i = 0; i < table_.points[a]; ++i) visit(AxisValue{a, i});
    }
  }
  const std::optional<Needs>& needs_of(const AxisValue& v) const { return needs_[first_[v.axis] + v.point]; }
  Needs chain(const AxisValue& v) const;
  bool all_live(const AxisRow& row, const ValueTuple& values) const;
  bool reach(const AxisValue& v, const Needs& needs);
  void find_plain();
  void find_needs();
  AxisRow drawn();
  bool attempt_needs(const ValueTuple& values, const Attempt& attempt) const;
  bool attempt_third_values(const ValueTuple& values, const Attempt& attempt) const;
  bool attempt_drawn(const ValueTuple& values, const Attempt& attempt);
  Found among_legal_rows(const ValueTuple& values, bool legal_is_enough);

  const AxisTable& table_;
  Draws& draws_;
  std::vector<std::size_t> first_;  ///< index of an axis's first value among all values
  std::vector<std::optional<Needs>> needs_;
  AxisRow plain_;  ///< a legal row with few axes off point 0, if one was found
  bool exact_ = false;
  std::optional<std::vector<AxisRow>> legal_rows_;
  std::vector<std::vector<bool>> live_in_;  ///< axes that matter in each legal row; empty: not computed
};

}  // namespace attnbench
