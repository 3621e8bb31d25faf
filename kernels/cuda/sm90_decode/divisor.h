// Division by a number known before a launch: a multiplication and a shift on the GPU instead of some forty
// instructions, which matters where a launch takes a few microseconds.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"

namespace attnbench::sm90_decode {

/// n / d for 0 <= n < 2^31 and 1 <= d < 2^31.
///
/// With 2^s <= d < 2^(s + 1) and multiplier m = ceil(2^(32 + s) / d), the error m * d - 2^(32 + s) is below
/// 2^(s + 1), so n * m / 2^(32 + s) is less than 1 / d above n / d: the same integer part (Granlund and
/// Montgomery, "Division by Invariant Integers using Multiplication", 1994). For powers of two m is taken
/// half as large, to fit 32 bits, with a shift less; 1 has no multiplier.
struct Divisor {
  uint32_t multiplier = 0;  ///< 0: division by 1
  uint32_t shift = 0;

  constexpr Divisor() = default;
  constexpr explicit Divisor(uint32_t d) {
    if (d == 1) return;
    while (d >> (shift + 1) != 0) ++shift;
    if ((d & (d - 1)) == 0) --shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (32 + shift)) + d - 1) / d);
  }

  ATTNBENCH_HD constexpr int32_t divide(int32_t n) const {
    if (multiplier == 0) return n;
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier;
    return static_cast<int32_t>(static_cast<uint32_t>(product >> 32) >> shift);
  }
};

}  // namespace attnbench::sm90_decode
