// What may be stored for a real number that a kernel computes in float32: an interval, whose width follows
// from the roundings on the way (README.md).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/contract/dtype.h"

namespace attnbench {

inline constexpr double kFloatRoundoff = 0x1p-24;
/// Two roundings of float32 and their product; the rest covers this file's own, in float64.
inline constexpr double kTwoRoundings = 2.0001 * kFloatRoundoff;
/// What roundings near zero add, where float32 has no digits left.
inline constexpr double kFloatQuantum = 0x1p-147;

struct Interval {
  double lo = 0;
  double hi = 0;
};

/// The numbers of type `t` that a value in the interval may be rounded to, as rounding keeps order.
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

/// Written so that NaN lies in no interval.
inline bool contains(Interval x, double v) { return v >= x.lo && v <= x.hi; }

}  // namespace attnbench
