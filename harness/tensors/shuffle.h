// A permutation that is the same on every platform.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/contract/philox.h"

namespace attnbench {

/// Differs from every Tensor's counters (values.h) and from the sample's (judge/sample.cpp).
inline constexpr uint32_t kShuffleStream = 0x5u << 24;

/// Fisher-Yates by Philox.
inline void shuffle(std::vector<int32_t>& v, uint64_t seed, uint32_t stream = kShuffleStream) {
  for (std::size_t i = v.size(); i-- > 1;) {
    const uint64_t r = philox4x32(stream, 0, static_cast<uint32_t>(i), 0, seed).x[0];
    std::swap(v[i], v[(r * (i + 1)) >> 32]);
  }
}

}  // namespace attnbench
