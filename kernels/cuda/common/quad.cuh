// Exchanges between the four lanes that share a row of an accumulator.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace attnbench::hopper {

/// Transposes a 4 x 4 matrix of words over the quad: lane q's word k becomes lane k's word q. Two rounds:
/// lanes 2 apart exchange halves, then neighbours.
__device__ __forceinline__ uint4 quad_transpose(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                int lane) {
  const bool upper = lane & 2;
  const bool odd = lane & 1;
  const uint32_t from_far0 = __shfl_xor_sync(~0u, upper ? a0 : a2, 2);
  const uint32_t from_far1 = __shfl_xor_sync(~0u, upper ? a1 : a3, 2);
  // `low` and `high` are words 2u and 2u + 1 (u = upper) of the lane of this parity in the lower and in the
  // upper pair.
  const uint32_t low0 = upper ? from_far0 : a0;
  const uint32_t low1 = upper ? from_far1 : a1;
  const uint32_t high0 = upper ? a2 : from_far0;
  const uint32_t high1 = upper ? a3 : from_far1;
  const uint32_t from_near_low = __shfl_xor_sync(~0u, odd ? low0 : low1, 1);
  const uint32_t from_near_high = __shfl_xor_sync(~0u, odd ? high0 : high1, 1);
  return odd ? make_uint4(from_near_low, low1, from_near_high, high1)
             : make_uint4(low0, from_near_low, high0, from_near_high);
}

}  // namespace attnbench::hopper
