// The median of samples, and how well it is known.
#pragma once

#include <span>
#include <vector>

namespace attnbench {

/// Median and its distribution-free 95 % interval: the order statistics whose binomial coverage reaches 95 %
/// (W. J. Conover, Practical Nonparametric Statistics, section 3.2). With fewer than 6 samples, the range.
struct MedianInterval {
  double median, lo, hi;
};
MedianInterval median_interval(std::vector<double> samples);

/// Half the width of the 95 % interval of the mean of the middle half: 1.96 standard errors from the
/// winsorised samples (R. R. Wilcox, Introduction to Robust Estimation and Hypothesis Testing,
/// section 3.3.2). Requires at least two samples.
double middle_half_error(std::vector<double> samples);

/// The least of the ascending values that `share` of them do not exceed: 0.99 of ten is the largest.
double quantile(std::span<const double> sorted, double share);

/// Half the 95 % interval of a median, as a share of the median: the distance to the far end.
double half_interval(double median, double lo, double hi);

}  // namespace attnbench
