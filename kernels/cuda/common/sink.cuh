// Attention sinks: one more term in a row's denominator, with no value of its own.
#pragma once

#include "kernels/cuda/common/registers.cuh"

namespace attnbench::hopper {

/// Adds the term 2^sink2 to the denominator of a row. `lse2` is the base-2 logarithm of the row's sum of
/// weights (-inf: the row saw no key); it is updated. Returns the factor for the row's normalised O. If both
/// logarithms are -inf, nothing changes. NaN stays NaN.
__device__ __forceinline__ float join_sink(float& lse2, float sink2) {
  const float top = fmaxf(lse2, sink2);
  if (top == -INFINITY) return 1.0f;
  const float total2 = top + __log2f(exp2_approx(lse2 - top) + exp2_approx(sink2 - top));
  const float kept = exp2_approx(lse2 - total2);
  lse2 = total2;
  return kept;
}

}  // namespace attnbench::hopper
