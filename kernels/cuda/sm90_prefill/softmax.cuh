// Online softmax of a warpgroup's scores, in registers, and the masks.
//
// A thread holds parts of two rows, h = 0 and 1, which lie 8 apart; the four lanes of a quad hold one row
// together. In s[4 * j + 2 * h + c] is the score of row h against key 8 * j + 2 * (lane % 4) + c of the KV
// block (wgmma.cuh).
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/score.h"
#include "kernels/cuda/common/registers.cuh"

namespace attnbench::sm90_prefill {

/// Key of s[i] within the KV block, without the lane's part; a constant once loops are unrolled.
__device__ constexpr int key_of(int i) { return 8 * (i / 4) + i % 2; }
__device__ constexpr int row_of(int i) { return i / 2 % 2; }

/// Reduces over the four lanes that share a row.
template <class Operation>
__device__ __forceinline__ float quad_reduce(float x, Operation op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

/// Keeps keys below end[h] (relative to the block, lane's part taken off), by selection: what is masked may
/// be NaN.
template <int kCount>
__device__ __forceinline__ void mask_from(float (&s)[kCount], const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = key_of(i) < end[row_of(i)] ? s[i] : -INFINITY;
}

/// Keeps keys from begin[h] on.
template <int kCount>
__device__ __forceinline__ void mask_before(float (&s)[kCount], const int (&begin)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = key_of(i) >= begin[row_of(i)] ? s[i] : -INFINITY;
}

/// s := tanh(s * softmax_scale / softcap), by way of exponential and reciprocal: tanh.approx is 2^-11 off,
/// which a cap of 50 would turn into 2 % of a weight. `factor` = 2 log2(e) softmax_scale / softcap.
template <int kCount>
__device__ __forceinline__ void apply_tanh(float (&s)[kCount], float factor) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = fmaf(-2.0f, hopper::reciprocal_approx(hopper::exp2_approx(s[i] * factor) + 1.0f), 1.0f);
  }
}

/// State of two rows: the greatest score so far, in units of raw scores, and the sum of weights of this
/// lane's keys.
struct OnlineSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};

  /// Turns scores into weights 2^(factor * (s - max)), factor > 0, and says by what older weights shrink.
  template <int kCount>
  __device__ __forceinline__ void update(float (&s)[kCount], float factor, float (&shrink)[2]) {
    float block_max[2][2] = {{s[0], s[1]}, {s[2], s[3]}};  // two chains per row
#pragma unroll
    for (int i = 4; i < kCount; ++i) {
      block_max[row_of(i)][i % 2] = fmaxf(block_max[row_of(i)][i % 2], s[i]);
    }
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float block =
          quad_reduce(fmaxf(block_max[h][0], block_max[h][1]), [](float a, float b) { return fmaxf(a, b); });
      const float previous = max[h];
      max[h] = fmaxf(previous, block);
      // A row that has seen no key yet: all its weights become 2^-inf = 0, not 2^(inf - inf).
      base[h] = max[h] == -INFINITY ? 0.0f : max[h] * factor;
      shrink[h] = hopper::exp2_approx(fmaf(previous, factor, -base[h]));
    }
    float block_sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = hopper::exp2_approx(fmaf(s[i], factor, -base[row_of(i)]));
      block_sum[row_of(i)][i % 2] += s[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = fmaf(sum[h], shrink[h], block_sum[h][0] + block_sum[h][1]);
  }

  /// Ends the rows: 1 / sum over the quad, 0 where a row saw no key, and the natural LSE. `natural_factor`
  /// turns a raw score into a natural logit.
  __device__ __forceinline__ void finish(float natural_factor, float (&normaliser)[2],
                                         float (&lse)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_reduce(sum[h], [](float a, float b) { return a + b; });
      const bool empty = total == 0.0f;  // the greatest visible key alone weighs 1; NaN stays NaN
      normaliser[h] = empty ? 0.0f : hopper::reciprocal_approx(total);
      lse[h] = empty ? -INFINITY : max[h] * natural_factor + __logf(total);
    }
  }
};

/// Weights rounded in pairs to the A operands of the product with V (wgmma.cuh).
template <DType kType, int kCount>
__device__ __forceinline__ void pack_weights(uint32_t (&p)[kCount / 8][4], const float (&s)[kCount]) {
#pragma unroll
  for (int k = 0; k < kCount / 8; ++k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) p[k][j] = hopper::pack_pair<kType>(s[8 * k + 2 * j], s[8 * k + 2 * j + 1]);
  }
}

/// Old outputs to the new maximum.
template <int kCount>
__device__ __forceinline__ void rescale(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[row_of(i)];
}

}  // namespace attnbench::sm90_prefill
