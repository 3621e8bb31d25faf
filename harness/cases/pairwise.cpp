#include "harness/cases/pairwise.h"

#include <random>

namespace attnbench {
namespace {

constexpr int kDrawnRows = 300;

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
    for (std::size_t a = 0; a < points_.size(); ++a) {
      for (std::size_t b = a + 1; b < points_.size(); ++b) {
        for (std::size_t i = 0; i < points_[a]; ++i) {
          for (std::size_t j = 0; j < points_[b]; ++j) set_open(a, i, b, j, true);
        }
      }
    }
  }

  PairwiseCover build() {
    if (points_.size() == 1) return single_axis();
    for (std::size_t a = 0; a < points_.size(); ++a) {
      for (std::size_t b = a + 1; b < points_.size(); ++b) {
        for (std::size_t i = 0; i < points_[a]; ++i) {
          for (std::size_t j = 0; j < points_[b]; ++j) {
            if (open(a, i, b, j)) cover({a, i, b, j});
          }
        }
      }
    }
    return std::move(out_);
  }

 private:
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

  /// The pair, and for every other axis the point that meets most open pairs with what is chosen already.
  AxisRow greedy(const ValuePair& pair) const {
    AxisRow row(points_.size(), 0);
    std::vector<std::size_t> chosen = {pair.axis_a, pair.axis_b};
    row[pair.axis_a] = pair.point_a;
    row[pair.axis_b] = pair.point_b;
    for (std::size_t axis = 0; axis < points_.size(); ++axis) {
      if (axis == pair.axis_a || axis == pair.axis_b) continue;
      int64_t best = -1;
      for (std::size_t k = 0; k < points_[axis]; ++k) {
        // Ties go round the points, so that none is favoured where nothing is open any more.
        const std::size_t point = (k + out_.rows.size()) % points_[axis];
        int64_t gain = 0;
        for (const std::size_t other : chosen) gain += open(axis, point, other, row[other]);
        if (gain > best) {
          best = gain;
          row[axis] = point;
        }
      }
      chosen.push_back(axis);
    }
    return row;
  }

  /// Takes the row if it is legal and the pair meets in it.
  bool take(const AxisRow& row, const ValuePair& pair) {
    if (!legal_(row) || !live_(row, pair.axis_a) || !live_(row, pair.axis_b)) return false;
    std::vector<std::size_t> alive;
    for (std::size_t a = 0; a < row.size(); ++a) {
      if (live_(row, a)) alive.push_back(a);
    }
    for (std::size_t x = 0; x < alive.size(); ++x) {
      for (std::size_t y = x + 1; y < alive.size(); ++y) {
        const std::size_t a = alive[x], b = alive[y];
        if (open(a, row[a], b, row[b])) {
          set_open(a, row[a], b, row[b], false);
          ++out_.pairs;
        }
      }
    }
    out_.rows.push_back(row);
    return true;
  }

  void cover(const ValuePair& pair) {
    if (take(greedy(pair), pair)) return;
    AxisRow row(points_.size(), 0);
    row[pair.axis_a] = pair.point_a;
    row[pair.axis_b] = pair.point_b;
    if (take(row, pair)) return;
    for (std::size_t axis = 0; axis < points_.size(); ++axis) {
      if (axis == pair.axis_a || axis == pair.axis_b) continue;
      for (std::size_t k = 1; k < points_[axis]; ++k) {
        AxisRow changed = row;
        changed[axis] = k;
        if (take(changed, pair)) return;
      }
    }
    for (int n = 0; n < kDrawnRows; ++n) {
      for (std::size_t axis = 0; axis < points_.size(); ++axis) {
        if (axis != pair.axis_a && axis != pair.axis_b) row[axis] = draw_() % points_[axis];
      }
      if (take(row, pair)) return;
    }
    out_.impossible.push_back(pair);
  }

  const std::vector<std::size_t>& points_;
  const std::function<bool(const AxisRow&)>& legal_;
  const std::function<bool(const AxisRow&, std::size_t)>& live_;
  std::vector<std::size_t> first_;  ///< index of an axis's first value among all values
  std::size_t values_ = 0;
  std::vector<bool> open_;  ///< (values, values): the pair has not met yet
  std::minstd_rand draw_;   // its sequence is fixed by the standard
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
