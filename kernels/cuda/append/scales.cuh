// Scales of quantised rows: how they are computed, inverted and applied. Rounding to e4m3 and int8.
#pragma once

#include <cuda_fp8.h>

#include "kernels/common/quantise.h"
#include "kernels/cuda/append/kernel.cuh"

namespace attnbench::cuda_append {

/// A power of two f that brings `scale` to where its reciprocal is normal. x / scale is x * (1 / (scale * f))
/// * f.
__device__ __forceinline__ float range_factor(float scale) {
  const float size = fabsf(scale);
  return size < 0x1p-120f ? 0x1p64f : size > 0x1p120f ? 0x1p-64f : 1.0f;
}

/// 1 / x within about half an ulp, for an x that has been multiplied by its range_factor.
__device__ __forceinline__ float reciprocal(float x) {
  const float r = hopper::reciprocal_approx(x);
  const float better = fmaf(fmaf(-x, r, 1.0f), r, r);
  return fabsf(better) <= 0x1p126f ? better : r;  // 0, infinity and NaN give what a division gives
}

/// 1 / x for a *usual* x: between 2^-120 and 2^120, where the range_factor is 1.
__device__ __forceinline__ float usual_reciprocal(float x) {
  const float r = hopper::reciprocal_approx(x);
  return fmaf(fmaf(-x, r, 1.0f), r, r);
}

/// The largest magnitude of eight numbers.
__device__ __forceinline__ float largest_of(const float (&x)[kChannels]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kChannels; ++i) amax = fmaxf(amax, fabsf(x[i]));
  return amax;
}

/// Whether nothing leaves the normal range on the way from `amax` to a scale and its reciprocal.
__device__ __forceinline__ bool has_usual_scale(float amax) { return amax >= 0x1p-100f && amax <= 0x1p120f; }

/// token_scale(t, amax) without its division, for an amax that has_usual_scale. The quotient is computed with
/// a reciprocal and corrected by its remainder. It equals the correctly rounded quotient (all significands
/// were tried).
__device__ __forceinline__ float usual_token_scale(DType t, float amax) {
  const float largest = t == DType::kE4m3 ? 448.0f : 127.0f;
  const float inverse = t == DType::kE4m3 ? 1.0f / 448.0f : 1.0f / 127.0f;
  const float quotient = amax * inverse;
  return fmaf(fmaf(-quotient, largest, amax), inverse, quotient);
}

__device__ __forceinline__ float fast_token_scale(DType t, float amax) {
  return has_usual_scale(amax) ? usual_token_scale(t, amax) : token_scale(t, amax);
}

/// Divides all x[i] by `scale`.
__device__ __forceinline__ void divide_by(float (&x)[kChannels], float scale) {
  const float factor = range_factor(scale);
  const float by = reciprocal(scale * factor);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) x[i] *= by;
  if (__builtin_expect(factor != 1.0f, 0)) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) x[i] *= factor;
  }
}

/// Four numbers rounded to e4m3, saturating at 448, the first in the low byte.
__device__ __forceinline__ uint32_t to_e4m3(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

/// Four numbers rounded to int8, saturating; NaN becomes 0. PTX ISA, "cvt.pack".
__device__ __forceinline__ uint32_t to_int8(float a, float b, float c, float d) {
  uint32_t word;
  asm("{.reg .u32 high; cvt.pack.sat.s8.s32.b32 high, %4, %3, 0; cvt.pack.sat.s8.s32.b32 %0, %2, %1, high;}"
      : "=r"(word)
      : "r"(__float2int_rn(a)), "r"(__float2int_rn(b)), "r"(__float2int_rn(c)), "r"(__float2int_rn(d)));
  return word;
}

}  // namespace attnbench::cuda_append
