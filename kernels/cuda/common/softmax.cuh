// Online softmax of a warp's scores, in registers.
//
// A lane holds parts of two rows, h = 0 and 1, which lie 8 apart; the four lanes of a quad hold one row
// together. s[n][2 * h + c] is the score of row h against token 8 * n + 2 * (lane % 4) + c (mma.cuh).
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/score.h"
#include "kernels/cuda/common/score.cuh"

namespace attnbench::hopper {

/// The score that weights are relative to. It is 0 where no key was seen, so that weights are 0 and not NaN.
///
/// Weights are 2^(factor * (score - reference)). The subtraction comes first, because it is exact near the
/// reference. The rounding of a product factor * reference would enter every exponent and differ from tile to
/// tile. At large scores it would bias the rounding of the weights themselves.
__device__ __forceinline__ float reference_of(float max) { return max == -INFINITY ? 0.0f : max; }

/// State of two rows: the greatest score so far, in units of raw scores, and the sum of weights of this
/// lane's tokens.
struct OnlineSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};

  /// Turns scores into weights 2^(factor * (s - max)), factor > 0, and sets the factor `shrink` for older
  /// weights.
  template <int kTiles>
  __device__ __forceinline__ void update(float (&s)[kTiles][4], float factor, float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float block = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < kTiles; ++n) block = fmaxf(block, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
      block = quad_reduce(block, [](float a, float b) { return fmaxf(a, b); });
      const float previous = max[h];
      max[h] = fmaxf(previous, block);
      const float reference = reference_of(max[h]);
      shrink[h] = exp2_approx((previous - reference) * factor);
      float weights = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[n][i] = exp2_approx((s[n][i] - reference) * factor);
          weights += s[n][i];
        }
      }
      sum[h] = fmaf(sum[h], shrink[h], weights);
    }
  }
};

/// The base-2 LSE: -inf for a row that saw no key; a sum that is NaN gives NaN.
__device__ __forceinline__ float lse2_of(float base, float sum) {
  return sum == 0.0f ? -INFINITY : base + __log2f(sum);
}

}  // namespace attnbench::hopper
