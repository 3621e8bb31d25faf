// Attention sinks: one more term in a row's denominator, with no value of its own.
#pragma once

#include "kernels/cuda/common/registers.cuh"

namespace attnbench::hopper {

/// Joins the term 2^sink2 to a row whose weights have the base-2 logarithm `lse2` (-inf: no key): changes
/// lse2, and returns by what factor the row's normalised O shrinks. Both may be -inf, then nothing changes;
/// NaN stays NaN.
__device__ __forceinline__ float join_sink(float& lse2, float sink2) {
  const float top = fmaxf(lse2, sink2);
  if (top == -INFINITY) return 1.0f;
  const float total2 = top + __log2f(exp2_approx(lse2 - top) + exp2_approx(sink2 - top));
  const float kept = exp2_approx(lse2 - total2);
  lse2 = total2;
  return kept;
}

}  // namespace attnbench::hopper
