// Operations on raw scores in registers, whichever kind of product (mma, wgmma) computed them.
#pragma once

#include "kernels/cuda/common/registers.cuh"

namespace attnbench::hopper {

/// Reduces over the four neighbouring lanes that share a row of an accumulator.
template <class Operation>
__device__ __forceinline__ float quad_reduce(float x, Operation op) {
  x = op(x, __shfl_xor_sync(~0u, x, 1));
  return op(x, __shfl_xor_sync(~0u, x, 2));
}

/// s := tanh(s * softmax_scale / softcap), computed from an exponential and a reciprocal. tanh.approx has an
/// error of 2^-11, which at a softcap of 50 would change a weight by 2 %. `factor` = 2 log2(e) softmax_scale
/// / softcap.
template <int kCount>
__device__ __forceinline__ void apply_tanh(float (&s)[kCount], float factor) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = fmaf(-2.0f, reciprocal_approx(exp2_approx(s[i] * factor) + 1.0f), 1.0f);
  }
}

template <int kRows, int kColumns>
__device__ __forceinline__ void apply_tanh(float (&s)[kRows][kColumns], float factor) {
#pragma unroll
  for (int n = 0; n < kRows; ++n) apply_tanh(s[n], factor);
}

}  // namespace attnbench::hopper
