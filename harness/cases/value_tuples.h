// A set of tuples of values: `size` values of as many axes.
#pragma once

#include <cstddef>
#include <vector>

#include "harness/cases/axis_rows.h"

namespace attnbench {

/// Calls visit(subset) with each subset of `size` of the axes, in their order.
template <class Visit>
void for_each_subset(const std::vector<std::size_t>& axes, std::size_t size, const Visit& visit) {
  if (size > axes.size()) return;
  std::vector<std::size_t> at(size), subset(size);
  for (std::size_t n = 0; n < size; ++n) at[n] = n;
  for (;;) {
    for (std::size_t n = 0; n < size; ++n) subset[n] = axes[at[n]];
    visit(subset);
    std::size_t n = size;
    while (n > 0 && at[n - 1] == axes.size() - size + n - 1) --n;
    if (n == 0) return;
    ++at[n - 1];
    for (; n < size; ++n) at[n] = at[n - 1] + 1;
  }
}

class TupleSet {
 public:
  /// Empty, or with every tuple in it. `points`: points of each axis.
  TupleSet(const std::vector<std::size_t>& points, std::size_t size, bool full);

  /// Number of tuples of a full set, as a double so that it cannot overflow.
  static double count(const std::vector<std::size_t>& points, std::size_t size);

  std::size_t size() const { return size_; }

  /// Whether the set holds the row's values at these axes, which are sorted; put() sets that.
  bool has(const AxisRow& row, const std::vector<std::size_t>& axes) const { return in_[index(row, axes)]; }
  void put(const AxisRow& row, const std::vector<std::size_t>& axes, bool in) { in_[index(row, axes)] = in; }

  /// Calls visit(tuple) with every tuple that a full set has.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::vector<std::size_t> all(points_.size());
    for (std::size_t a = 0; a < all.size(); ++a) all[a] = a;
    for_each_subset(all, size_, [&](const std::vector<std::size_t>& axes) {
      ValueTuple tuple;
      for (const std::size_t a : axes) tuple.push_back({a, 0});
      for (bool more = true; more;) {
        visit(static_cast<const ValueTuple&>(tuple));
        more = false;
        for (std::size_t n = size_; n-- > 0 && !more;) {
          more = ++tuple[n].point < points_[tuple[n].axis];
          if (!more) tuple[n].point = 0;
        }
      }
    });
  }

 private:
  std::size_t place(const std::vector<std::size_t>& axes) const {
    std::size_t n = 0;
    for (const std::size_t a : axes) n = n * points_.size() + a;
    return n;
  }
  std::size_t index(const AxisRow& row, const std::vector<std::size_t>& axes) const {
    std::size_t n = 0;
    for (const std::size_t a : axes) n = n * points_[a] + row[a];
    return begin_[place(axes)] + n;
  }

  std::vector<std::size_t> points_;
  std::size_t size_;
  std::vector<std::size_t> begin_;  ///< index of the first tuple of a set of axes, by place()
  std::vector<bool> in_;
};

}  // namespace attnbench
