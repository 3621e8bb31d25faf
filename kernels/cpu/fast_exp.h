// exp2 and tanh on vectors of float.
#pragma once

#include <cstdint>

#include "kernels/common/score.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// Relative error of exp2_vec over [-126, 0]. Numerics declares it; tests/kernels/cpu_math_test.cpp checks
/// it.
inline constexpr double kExpRelErr = 1.0 / (1 << 23);

/// 2^x for x <= 0: exactly 1 at 0, and exactly 0 from -126.5 down to -inf. NaN stays NaN, with any payload.
///
/// x = n + f, where n is the nearest integer. 2^f is a polynomial of degree 6, fitted for the least maximal
/// relative error on [-1/2, 1/2] with a constant term of 1. Its error is 2^-28.9, so rounding dominates. 2^n
/// is built from bits.
ATTNBENCH_INLINE Vec exp2_vec(Vec x) {
  const Vec clamped = x < -127.0f ? splat(-127.0f) : x;  // 2^-127 has scale bits 0: the product is 0
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the integer in the low bits
  const Vec shifted = clamped + kRound;
  const Vec f = clamped - (shifted - kRound);
  Vec y = 1.535336341e-04f * f + 1.339887502e-03f;
  y = y * f + 9.618436918e-03f;
  y = y * f + 5.550332367e-02f;
  y = y * f + 2.402264774e-01f;
  y = y * f + 6.931471825e-01f;
  y = y * f + 1.0f;
  const BitVec scale = (bit_cast_vec<BitVec>(shifted) + (127u - 0x4b400000u)) << 23;
  return y * bit_cast_vec<Vec>(scale);
}

/// exp2_vec of one number.
inline float exp2_float(float x) { return exp2_vec(splat(x))[0]; }

/// tanh(x) to a few units in the last place. Near 0 it is an odd polynomial, that of Cephes' tanhf, with a
/// relative error of about 2^-23. Elsewhere it is (1 - t) / (1 + t) with t = exp(-2 |x|).
ATTNBENCH_INLINE Vec tanh_vec(Vec x) {
  const BitVec sign = bit_cast_vec<BitVec>(x) & 0x80000000u;
  const Vec a = bit_cast_vec<Vec>(bit_cast_vec<BitVec>(x) ^ sign);
  const Vec t = exp2_vec(a * (-2.0f * kLog2E));
  const Vec large = (1.0f - t) / (1.0f + t);
  const Vec z = a * a;
  Vec y = -5.70498872745e-3f * z + 2.06390887954e-2f;
  y = y * z - 5.37397155531e-2f;
  y = y * z + 1.33314422036e-1f;
  y = y * z - 3.33332819422e-1f;
  const Vec small = y * z * a + a;
  const Vec magnitude = a < 0.625f ? small : large;
  return bit_cast_vec<Vec>(bit_cast_vec<BitVec>(magnitude) | sign);
}

}  // namespace attnbench::cpu
