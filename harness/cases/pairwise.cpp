#include "harness/cases/pairwise.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>

namespace attnbench {
namespace {

/// Orders in which the axes of a row are filled; the row that meets most open pairs is taken.
constexpr std::size_t kOrders = 3;
/// Rows drawn for a pair that its values' needs do not lead to, and for a legal row to begin with.
constexpr int kDrawnRows = 100;

class Builder {
 public:
  Builder(const std::vector<std::size_t>& points, const std::function<bool(const AxisRow&)>& legal,
          const std::function<bool(const AxisRow&, std::size_t)>& live)
      : points_(points), legal_(legal), live_(live) {
    for (const std::size_t n : points_) {
      first_.push_back(values_);
      values_ += n;
    }
    open_.assign(values_ * values_, false);
    for_each_pair([&](const ValuePair& p) { set_open(p.axis_a, p.point_a, p.axis_b, p.point_b, true); });
  }

  PairwiseCover build() {
    if (points_.size() == 1) return single_axis();
    find_plain();
    find_needs();
    for_each_pair([&](const ValuePair& p) {
      if (!open(p.axis_a, p.point_a, p.axis_b, p.point_b)) return;
      if (const std::optional<AxisRow> row = completed(p)) {
        take(fullest(*row, p));
      } else {
        set_open(p.axis_a, p.point_a, p.axis_b, p.point_b, false);
        out_.impossible.push_back(p);
      }
    });
    return std::move(out_);
  }

 private:
  /// What one value asks of other axes before it is legal and makes a difference.
  using Needs = std::vector<std::pair<std::size_t, std::size_t>>;  // (axis, point)

  template <class Visit>
  void for_each_pair(const Visit& visit) const {
    for (std::size_t a = 0; a < points_.size(); ++a) {
      for (std::size_t b = a + 1; b < points_.size(); ++b) {
        for (std::size_t i = 0; i < points_[a]; ++i) {
          for (std::size_t j = 0; j < points_[b]; ++j) visit(ValuePair{a, i, b, j});
        }
      }
    }
  }
  template <class Visit>
  void for_each_value(const Visit& visit) const {
    for (std::size_t a = 0; a < points_.size(); ++a) {
      for (std::size_t i = 0; i < points_[a]; ++i) visit(a, i);
    }
  }

  bool open(std::size_t a, std::size_t i, std::size_t b, std::size_t j) const {
    return open_[(first_[a] + i) * values_ + first_[b] + j];
  }
  void set_open(std::size_t a, std::size_t i, std::size_t b, std::size_t j, bool to) {
    open_[(first_[a] + i) * values_ + first_[b] + j] = to;
    open_[(first_[b] + j) * values_ + first_[a] + i] = to;
  }

  PairwiseCover single_axis() {
    for (std::size_t i = 0; i < points_[0]; ++i) {
      if (legal_({i})) out_.rows.push_back({i});
    }
    return std::move(out_);
  }

  AxisRow with(AxisRow row, const Needs& needs) const {
    for (const auto& [axis, point] : needs) row[axis] = point;
    return row;
  }
  bool works(const AxisRow& row, std::size_t axis) const { return legal_(row) && live_(row, axis); }
  bool works(const AxisRow& row, const ValuePair& p) const {
    return row[p.axis_a] == p.point_a && row[p.axis_b] == p.point_b && works(row, p.axis_a) &&
           live_(row, p.axis_b);
  }
  const std::optional<Needs>& needs_of(std::size_t axis, std::size_t point) const {
    return needs_[first_[axis] + point];
  }

  /// What one of the values reached so far needs, and that value as well.
  Needs chain(std::size_t axis, std::size_t point) const {
    Needs needs = *needs_of(axis, point);
    needs.emplace_back(axis, point);
    return needs;
  }
  bool reach(std::size_t axis, std::size_t point, const Needs& needs) {
    if (needs_of(axis, point).has_value() || !works(with(with(plain_, needs), {{axis, point}}), axis))
      return false;
    needs_[first_[axis] + point] = needs;
    return true;
  }

  /// Each axis at its plainest point or, as often, at any.
  AxisRow drawn() {
    AxisRow row = plain_;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (draw_() % 2 == 0) row[a] = draw_() % points_[a];
    }
    return row;
  }

  /// The row of first points, or one near it that is legal.
  void find_plain() {
    const AxisRow first(points_.size(), 0);
    plain_ = first;
    for (std::size_t a = 0; a < points_.size(); ++a) {
      for (std::size_t i = 0; i < points_[a] && !legal_(plain_); ++i) plain_ = with(first, {{a, i}});
    }
    if (legal_(plain_)) return;
    plain_ = first;
    for (int n = 0; n < kDrawnRows; ++n) {
      const AxisRow row = drawn();
      if (!legal_(row)) continue;
      plain_ = row;
      return;
    }
  }

  /// From the plainest row: a value that works there needs nothing; another needs what one of the former
  /// needs, and that one itself, and so on until no further value is reached; the rest need two of them.
  void find_needs() {
    needs_.assign(values_, std::nullopt);
    for_each_value([&](std::size_t a, std::size_t i) { reach(a, i, {}); });
    for (bool more = true; more;) {
      more = false;
      for_each_value([&](std::size_t a, std::size_t i) {
        for_each_value([&](std::size_t b, std::size_t j) {
          if (b != a && needs_of(b, j) && reach(a, i, chain(b, j))) more = true;
        });
      });
    }
    for_each_value([&](std::size_t a, std::size_t i) {
      for_each_value([&](std::size_t b, std::size_t j) {
        if (b == a || !needs_of(b, j) || needs_of(a, i)) return;
        for_each_value([&](std::size_t c, std::size_t k) {
          if (c == a || c == b || !needs_of(c, k) || needs_of(a, i)) return;
          Needs both = chain(b, j);
          const Needs second = chain(c, k);
          both.insert(both.end(), second.begin(), second.end());
          both.emplace_back(b, j);
          reach(a, i, both);
        });
      });
    });
  }

  /// A row in which the pair meets: what both values need, and where that is not enough or does not agree,
  /// what a third value needs and that value as well.
  std::optional<AxisRow> completed(const ValuePair& p) {
    static const Needs kNothing;
    const Needs pair = {{p.axis_a, p.point_a}, {p.axis_b, p.point_b}};
    const Needs& a = needs_of(p.axis_a, p.point_a) ? *needs_of(p.axis_a, p.point_a) : kNothing;
    const Needs& b = needs_of(p.axis_b, p.point_b) ? *needs_of(p.axis_b, p.point_b) : kNothing;
    std::set<AxisRow> tried;
    std::optional<AxisRow> found;
    const auto attempt = [&](const AxisRow& row) {
      if (!found && tried.insert(row).second && works(row, p)) found = row;
    };
    attempt(with(with(with(plain_, a), b), pair));
    attempt(with(with(with(plain_, b), a), pair));
    for_each_value([&](std::size_t c, std::size_t k) {
      if (found || c == p.axis_a || c == p.axis_b || !needs_of(c, k)) return;
      const AxisRow both = with(with(plain_, a), b);
      attempt(with(with(with(both, *needs_of(c, k)), {{c, k}}), pair));
      attempt(with(with(with(with(with(plain_, *needs_of(c, k)), a), b), {{c, k}}), pair));
    });
    for (int n = 0; n < kDrawnRows && !found; ++n) attempt(with(with(with(drawn(), a), b), pair));
    for (int n = 0; n < kDrawnRows && !found; ++n) attempt(with(drawn(), pair));
    return found;
  }

  /// In file order, backwards, and from the middle on.
  std::size_t nth_axis(std::size_t order, std::size_t n) const {
    const std::size_t axes = points_.size();
    return order == 0 ? n : order == 1 ? axes - 1 - n : (n + axes / 2) % axes;
  }

  /// The row with every other axis, one after the other, at the point that is legal and meets most open
  /// pairs with those before it.
  AxisRow filled(AxisRow row, const ValuePair& pair, std::size_t order) const {
    std::vector<std::size_t> chosen = {pair.axis_a, pair.axis_b};
    for (std::size_t n = 0; n < points_.size(); ++n) {
      const std::size_t axis = nth_axis(order, n);
      if (std::find(chosen.begin(), chosen.end(), axis) != chosen.end()) continue;
      std::vector<std::pair<int64_t, std::size_t>> ranked;  // (-gain, point)
      for (std::size_t k = 0; k < points_[axis]; ++k) {
        // Ties go round the points, so that none is favoured where nothing is open any more.
        const std::size_t point = (k + out_.rows.size()) % points_[axis];
        int64_t gain = 0;
        for (const std::size_t other : chosen) gain += open(axis, point, other, row[other]);
        ranked.emplace_back(-gain, point);
      }
      std::stable_sort(ranked.begin(), ranked.end(),
                       [](const auto& x, const auto& y) { return x.first < y.first; });
      const std::size_t before = row[axis];
      for (const auto& [gain, point] : ranked) {
        row[axis] = point;
        if (point == before || works(row, pair)) break;
        row[axis] = before;
      }
      chosen.push_back(axis);
    }
    return row;
  }

  std::vector<std::size_t> living(const AxisRow& row) const {
    std::vector<std::size_t> alive;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (live_(row, a)) alive.push_back(a);
    }
    return alive;
  }

  template <class Visit>
  void for_each_open_pair(const AxisRow& row, const Visit& visit) const {
    const std::vector<std::size_t> alive = living(row);
    for (std::size_t x = 0; x < alive.size(); ++x) {
      for (std::size_t y = x + 1; y < alive.size(); ++y) {
        const std::size_t a = alive[x], b = alive[y];
        if (open(a, row[a], b, row[b])) visit(a, b);
      }
    }
  }

  AxisRow fullest(const AxisRow& row, const ValuePair& pair) const {
    AxisRow best;
    int64_t most = -1;
    for (std::size_t order = 0; order < kOrders; ++order) {
      const AxisRow candidate = filled(row, pair, order);
      int64_t met = 0;
      for_each_open_pair(candidate, [&](std::size_t, std::size_t) { ++met; });
      if (met > most) {
        most = met;
        best = candidate;
      }
    }
    return best;
  }

  void take(const AxisRow& row) {
    for_each_open_pair(row, [&](std::size_t a, std::size_t b) {
      set_open(a, row[a], b, row[b], false);
      ++out_.pairs;
    });
    out_.rows.push_back(row);
  }

  const std::vector<std::size_t>& points_;
  const std::function<bool(const AxisRow&)>& legal_;
  const std::function<bool(const AxisRow&, std::size_t)>& live_;
  std::vector<std::size_t> first_;  ///< index of an axis's first value among all values
  std::size_t values_ = 0;
  std::vector<bool> open_;  ///< (values, values): the pair has not met yet
  std::vector<std::optional<Needs>> needs_;
  AxisRow plain_;          ///< legal where any row near that of first points is
  std::minstd_rand draw_;  // its sequence is fixed by the standard
  PairwiseCover out_;
};

}  // namespace

PairwiseCover pairwise_cover(const std::vector<std::size_t>& points,
                             const std::function<bool(const AxisRow&)>& legal,
                             const std::function<bool(const AxisRow&, std::size_t axis)>& live) {
  if (points.empty()) {
    PairwiseCover single;
    if (legal({})) single.rows.push_back({});
    return single;
  }
  return Builder(points, legal, live).build();
}

}  // namespace attnbench
