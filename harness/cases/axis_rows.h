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

/// Values of different axes, in the order of these.
using ValueTuple = std::vector<AxisValue>;

struct AxisTable {
  std::vector<std::size_t> points;  ///< of each axis; its first is the plainest
  /// Whether the row may be used.
  std::function<bool(const AxisRow&)> legal;
  /// Whether the axis makes a difference in a legal row: a block size does not where nothing is paged.
  std::function<bool(const AxisRow&, std::size_t axis)> live;
};

/// Whole numbers by Philox: the same on every machine.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  /// From 0 to n - 1; n at most 2^32.
  std::size_t below(std::size_t n);
  template <class T>
  void shuffle(std::vector<T>& v) {
    for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[below(i)]);
  }

 private:
  uint64_t seed_;
  uint32_t next_ = 0;
};

/// Finds rows that hold given values. Rows are built from the plainest legal one by what a value needs of
/// other axes to be legal and to make a difference; where that does not lead to a row, all rows are tried if
/// there are few of them, else drawn ones.
class RowFinder {
 public:
  /// Keeps a reference to both.
  RowFinder(const AxisTable& table, Draws& draws);

  struct Found {
    bool legal = false;          ///< some legal row holds the values
    std::optional<AxisRow> row;  ///< one in which each of them makes a difference
  };
  /// With `legal_is_enough`, any legal row that holds them.
  Found holding(const ValueTuple& values, bool legal_is_enough = false);

  /// Whether the row is legal, holds the values, and each of them makes a difference in it.
  bool works(const AxisRow& row, const ValueTuple& values) const;

  /// Whether all rows can be tried, so that what was not found does not exist.
  bool is_exact() const { return exact_; }
  /// All legal rows where is_exact(), the last axis fastest.
  const std::vector<AxisRow>& legal_rows();

 private:
  /// What one value asks of other axes.
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
  AxisRow plain_;  ///< legal where any row near that of first points is
  bool exact_ = false;
  std::optional<std::vector<AxisRow>> legal_rows_;
  std::vector<std::vector<bool>> live_in_;  ///< which axes make a difference in each; empty: not asked yet
};

}  // namespace attnbench
