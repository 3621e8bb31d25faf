#include "harness/cases/cover.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/cases/value_tuples.h"

namespace attnbench {
namespace {

/// A row is filled in this many orders of the axes; the one that meets most open tuples is taken.
constexpr std::size_t kOrders = 3;
/// A sample ends after this many draws without a new case.
constexpr int kVainDraws = 1000;

/// Sets the axis to the first of `points` with which the row works; without one, the row stays as it was.
void set_first_working(const RowFinder& finder, const ValueTuple& values, std::size_t axis,
                       const std::vector<std::size_t>& points, AxisRow& row) {
  const std::size_t before = row[axis];
  for (const std::size_t point : points) {
    row[axis] = point;
    if (point == before || finder.works(row, values)) return;
  }
  row[axis] = before;
}

std::vector<std::size_t> up_to(std::size_t n) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

class Builder {
 public:
  Builder(const AxisTable& table, std::size_t strength, uint64_t seed)
      : table_(table), draws_(seed), finder_(table, draws_), open_(table.points, strength, true) {}

  Cover build() {
    out_.exact = finder_.is_exact();
    if (open_.size() == 3) settle_pairs();
    open_.for_each([&](const ValueTuple& tuple) {
      if (!open_.has(row_of(tuple), axes_of(tuple))) return;
      const RowFinder::Found found = finder_.holding(tuple);
      if (found.row) {
        take(fullest(*found.row, tuple));
      } else {
        list(tuple, found.legal);
      }
    });
    take_single_values();
    return std::move(out_);
  }

 private:
  static std::vector<std::size_t> axes_of(const ValueTuple& tuple) {
    std::vector<std::size_t> axes;
    for (const AxisValue& v : tuple) axes.push_back(v.axis);
    return axes;
  }
  AxisRow row_of(const ValueTuple& tuple) const {
    AxisRow row(table_.points.size(), 0);
    for (const AxisValue& v : tuple) row[v.axis] = v.point;
    return row;
  }

  /// Adds rows for values that no row has in effect: a value that makes a difference only where no other axis
  /// does is in no tuple that meets. If there is still no row, the row of first points is added if legal.
  void take_single_values() {
    std::set<std::pair<std::size_t, std::size_t>> met;
    const auto note = [&](const AxisRow& row) {
      for (const std::size_t a : living(row)) met.emplace(a, row[a]);
    };
    for (const AxisRow& row : out_.rows) note(row);
    for (std::size_t a = 0; a < table_.points.size(); ++a) {
      for (std::size_t point = 0; point < table_.points[a]; ++point) {
        if (met.count({a, point}) > 0) continue;
        const ValueTuple value = {{a, point}};
        const std::optional<AxisRow> row = finder_.holding(value).row;
        if (!row) continue;
        out_.rows.push_back(*row);
        note(*row);
      }
    }
    if (!out_.rows.empty() || table_.points.empty()) return;
    const AxisRow first(table_.points.size(), 0);
    if (table_.legal(first)) out_.rows.push_back(first);
  }

  void list(const ValueTuple& tuple, bool legal) {
    if (tuple.size() == open_.size()) open_.put(row_of(tuple), axes_of(tuple), false);
    (legal ? out_.indifferent : out_.impossible).push_back(tuple);
  }

  /// Lists the pairs that never meet and drops the triples that hold one. A dropped triple is listed only if
  /// it is impossible and its pairs are at worst indifferent.
  void settle_pairs() {
    TupleSet impossible(table_.points, 2, false), indifferent(table_.points, 2, false);
    impossible.for_each([&](const ValueTuple& pair) {
      const RowFinder::Found found = finder_.holding(pair);
      if (found.row) return;
      list(pair, found.legal);
      (found.legal ? indifferent : impossible).put(row_of(pair), axes_of(pair), true);
    });
    open_.for_each([&](const ValueTuple& triple) {
      const AxisRow row = row_of(triple);
      const std::vector<std::size_t> axes = axes_of(triple);
      bool no_row = false, no_difference = false;
      for_each_subset(axes, 2, [&](const std::vector<std::size_t>& pair) {
        no_row = no_row || impossible.has(row, pair);
        no_difference = no_difference || indifferent.has(row, pair);
      });
      if (!no_row && !no_difference) return;
      open_.put(row, axes, false);
      if (!no_row && !finder_.holding(triple, true).legal) list(triple, false);
    });
  }

  /// The n-th axis of an order. Order 0 is file order, 1 is backwards, 2 starts in the middle.
  std::size_t nth_axis(std::size_t order, std::size_t n) const {
    const std::size_t axes = table_.points.size();
    return order == 0 ? n : order == 1 ? axes - 1 - n : (n + axes / 2) % axes;
  }

  /// Number of open tuples made of the row's value at `axis` and its values at `chosen`, which is sorted.
  int64_t gain(const AxisRow& row, std::size_t axis, const std::vector<std::size_t>& chosen) const {
    int64_t gain = 0;
    std::vector<std::size_t> axes;
    for_each_subset(chosen, open_.size() - 1, [&](const std::vector<std::size_t>& others) {
      axes.assign(others.begin(), others.end());
      axes.insert(std::ranges::lower_bound(axes, axis), axis);
      gain += open_.has(row, axes);
    });
    return gain;
  }

  /// Points of an axis; the one that meets most open tuples with the chosen axes comes first, and equal ones
  /// come in random order. If none meets any and the filling is plain, only the present point is returned.
  std::vector<std::size_t> ranked(AxisRow row, std::size_t axis, const std::vector<std::size_t>& chosen,
                                  bool plain) {
    std::vector<std::size_t> points = up_to(table_.points[axis]);
    if (points.size() == 1) return points;
    const std::size_t before = row[axis];
    draws_.shuffle(points);
    std::vector<int64_t> gains(points.size());
    for (const std::size_t point : points) {
      row[axis] = point;
      gains[point] = gain(row, axis, chosen);
    }
    if (plain && *std::ranges::max_element(gains) == 0) return {before};
    std::ranges::stable_sort(points, [&](std::size_t x, std::size_t y) { return gains[x] > gains[y]; });
    return points;
  }

  /// Sets every axis that is not in `tuple`, one after the other, to the point that works and meets most open
  /// tuples with the axes before it.
  AxisRow filled(AxisRow row, const ValueTuple& tuple, std::size_t order, bool plain) {
    std::vector<std::size_t> chosen = axes_of(tuple);
    for (std::size_t n = 0; n < table_.points.size(); ++n) {
      const std::size_t axis = nth_axis(order, n);
      const auto at = std::ranges::lower_bound(chosen, axis);
      if (at != chosen.end() && *at == axis) continue;
      const auto place = at - chosen.begin();
      set_first_working(finder_, tuple, axis, ranked(row, axis, chosen, plain), row);
      chosen.insert(chosen.begin() + place, axis);
    }
    return row;
  }

  std::vector<std::size_t> living(const AxisRow& row) const {
    std::vector<std::size_t> alive;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (table_.live(row, a)) alive.push_back(a);
    }
    return alive;
  }

  template <class Visit>
  void for_each_open_tuple(const AxisRow& row, const Visit& visit) const {
    for_each_subset(living(row), open_.size(), [&](const std::vector<std::size_t>& axes) {
      if (open_.has(row, axes)) visit(axes);
    });
  }

  /// The best of kOrders fillings. A random half of the rows is filled plainly, because a kernel that lacks
  /// some features refuses most rows of random values.
  AxisRow fullest(const AxisRow& row, const ValueTuple& tuple) {
    const bool plain = draws_.below(2) == 0;
    AxisRow best;
    int64_t most = -1;
    for (std::size_t order = 0; order < kOrders; ++order) {
      const AxisRow candidate = filled(row, tuple, order, plain);
      int64_t met = 0;
      for_each_open_tuple(candidate, [&](const auto&) { ++met; });
      if (met > most) {
        most = met;
        best = candidate;
      }
    }
    return best;
  }

  void take(const AxisRow& row) {
    for_each_open_tuple(row, [&](const std::vector<std::size_t>& axes) {
      open_.put(row, axes, false);
      ++out_.met;
    });
    out_.rows.push_back(row);
  }

  const AxisTable& table_;
  Draws draws_;
  RowFinder finder_;
  TupleSet open_;  ///< tuples that have not met yet
  Cover out_;
};

}  // namespace

Cover cover_tuples(const AxisTable& table, std::size_t strength, uint64_t seed) {
  return Builder(table, strength, seed).build();
}

void sample_rows(const AxisTable& table, int64_t count, uint64_t seed,
                 const std::function<bool(const AxisRow&)>& take) {
  Draws draws(seed);
  RowFinder finder(table, draws);
  if (finder.is_exact()) {
    std::vector<AxisRow> rows = finder.legal_rows();
    draws.shuffle(rows);
    for (std::size_t r = 0; r < rows.size() && count > 0; ++r) count -= take(rows[r]);
    return;
  }
  std::vector<std::size_t> axes = up_to(table.points.size());
  std::set<AxisRow> seen;
  for (int vain = 0; vain < kVainDraws && count > 0; ++vain) {
    const std::size_t first = draws.below(axes.size());
    const ValueTuple value = {{first, draws.below(table.points[first])}};
    std::optional<AxisRow> row = finder.holding(value).row;
    if (!row) continue;
    draws.shuffle(axes);
    for (const std::size_t axis : axes) {
      if (axis == first) continue;
      std::vector<std::size_t> points = up_to(table.points[axis]);
      draws.shuffle(points);
      set_first_working(finder, value, axis, points, *row);
    }
    if (!seen.insert(*row).second || !take(*row)) continue;
    --count;
    vain = 0;
  }
}

}  // namespace attnbench
