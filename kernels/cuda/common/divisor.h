// Division by a number that is known before a launch. On the GPU it takes a multiplication and a shift
// instead of some forty instructions, which matters in launches of a few microseconds. Plain arithmetic, for
// host and device.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"

namespace attnbench {

/// n / d for 0 <= n < 2^31 and 1 <= d < 2^31.
///
/// With s = log2(d) rounded up, 2^32 + multiplier = floor(2^(32 + s) / d) + 1. The product of this number
/// with n, divided by 2^(32 + s), exceeds n / d by less than 1 / d, so it has the same integer part (Granlund
/// and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
struct Divisor {
  uint32_t multiplier = 0;  ///< 0, with shift 0: division by 1
  uint32_t shift = 0;

  constexpr Divisor() = default;
  constexpr explicit Divisor(uint32_t d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }

  ATTNBENCH_HD constexpr int32_t divide(int32_t n) const {
    const auto u = static_cast<uint32_t>(n);
#ifdef __CUDA_ARCH__
    const uint32_t high = __umulhi(u, multiplier);
#else
    const auto high = static_cast<uint32_t>(uint64_t{u} * multiplier >> 32);
#endif
    return static_cast<int32_t>((high + u) >> shift);
  }
};

}  // namespace attnbench
