// The power of a verdict: the smallest mistakes that its limits would have shown.
#pragma once

#include <cmath>

#include "harness/facts/verdict.h"

namespace attnbench {

/// A mistake of size e that adds e times its effect to the outputs, to first order. Finds the least e that a detector
/// sees beside errors as large as the launch's own, which may counter it: README.md of this folder.
class LeastSeen {
 public:
  /// One element of the row in hand, in standard deviations: the launch's error, the mistake's effect, the expected
  /// value.
  void element(double z, double effect, double expected);
  /// Ends the row. limit: of the mean of its z^2. slope_weight: of the row in the case's slope; 0: it is no part of it.
  void end_row(int elements, double limit, double slope_weight);
  void add(const LeastSeen& other);

  /// By max_z and row_z2.
  double by_rows() const { return by_rows_; }
  /// A lower bound, by 3 standard errors, of the slope that the mistake has over the case at e = 1; NaN if unknown.
  double slope() const;

 private:
  double by_rows_ = INFINITY;
  double max_z_ = 0, max_effect_ = 0, z2_ = 0, effect2_ = 0, xx_ = 0, xy_ = 0;  // of the row in hand
  double rows_ = 0, w_ = 0, wr_ = 0, w2_ = 0, w2r_ = 0,
         w2r2_ = 0;  // sums of the rows' weights w and slopes r
};

/// What was found of one case's rows.
struct PowerTotals {
  LeastSeen o_scale, softmax_scale;
  double softmax_scale_by_lse = INFINITY;
  double dropped_key = -1,
         dropped_key_by_o = -1;  ///< of the row that shows it worst; -1: no row has two keys

  void add(const PowerTotals& other);
  /// Ends the row of both scales. by_lse: the softmax_scale error that its LSE would show.
  void end_row(int elements, double limit, double slope_weight, double by_lse);
  /// Adds a row that would show a key of these odds, p / (1 - p), in O, and this change of its LSE (INFINITY: it has none).
  void drop_key(double odds, double lse_change);
  /// bias_left: what the slope of the outputs may grow by. tilted: share of the rows with more than one key in it.
  Power power(double bias_left, double tilted) const;
};

/// Least e by which errors whose mean square is z2, and e times an effect whose mean square is effect2, exceed a limit of
/// the mean square of n elements. The errors counter the effect by as much as chance lets independent ones do.
double least_by_row(double limit, double z2, double effect2, int n);

}  // namespace attnbench
