// The interval of numbers that may be stored for a real number that a kernel computes in float32. Its width
// follows from the roundings on the way (README.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/contract/dtype.h"

namespace attnbench {

inline constexpr double kFloatRoundoff = 0x1p-24;
/// Relative error of two float32 roundings and their product. The rest of the factor covers this file's own
/// roundings in float64.
inline constexpr double kTwoRoundings = 2.0001 * kFloatRoundoff;
/// Absolute error of roundings near zero, where float32 has no digits left.
inline constexpr double kFloatQuantum = 0x1p-147;

struct Interval {
  double lo = 0;
  double hi = 0;
};

/// The numbers of type `t` to which values in the interval may be rounded. Rounding keeps order, so rounding
/// both ends is enough.
inline Interval rounded_to(DType t, Interval x) {
  const auto outward = [](double v, double towards) {
    const float f = static_cast<float>(v);
    const bool inside = towards < 0 ? static_cast<double>(f) > v : static_cast<double>(f) < v;
    return inside ? std::nextafter(f, towards < 0 ? -std::numeric_limits<float>::infinity()
                                                  : std::numeric_limits<float>::infinity())
                  : f;
  };
  return {static_cast<double>(round_to(t, outward(x.lo, -1))),
          static_cast<double>(round_to(t, outward(x.hi, 1)))};
}

/// `x` widened by the error of two float32 roundings.
inline Interval widened(Interval x) {
  return {x.lo - kTwoRoundings * std::abs(x.lo) - kFloatQuantum,
          x.hi + kTwoRoundings * std::abs(x.hi) + kFloatQuantum};
}

/// The float32 results of x / scale, by a division or by a product with 1 / scale. scale > 0.
inline Interval quotient(Interval x, double scale) { return widened({x.lo / scale, x.hi / scale}); }

/// The scale that a launch may compute for a row in e4m3, e5m2 or int8: the row's largest magnitude over the type's
/// largest number, or 1 for a row of zeros. float32 may miss each value x[c] by slack[c].
inline Interval computed_scale(DType t, std::span<const double> x, std::span<const double> slack) {
  Interval amax{0, 0};
  for (std::size_t c = 0; c < x.size(); ++c) {
    amax.lo = std::max(amax.lo, std::abs(x[c]) - slack[c]);
    amax.hi = std::max(amax.hi, std::abs(x[c]) + slack[c]);
  }
  if (amax.hi == 0) return {1, 1};
  return quotient(amax, static_cast<double>(largest_number(t)));
}

/// Written so that NaN lies in no interval.
inline bool contains(Interval x, double v) { return v >= x.lo && v <= x.hi; }

}  // namespace attnbench
