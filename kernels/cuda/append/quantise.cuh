// New rows of K and V to caches in e4m3 or int8: rotated in fp32, divided by a scale that is given or
// computed, and rounded once.
#pragma once

#include <cuda_fp8.h>

#include "kernels/common/quantise.h"
#include "kernels/cuda/append/kernel.cuh"

namespace attnbench::cuda_append {

/// 1 / x within about half an ulp, for x whose reciprocal is normal.
__device__ __forceinline__ float reciprocal(float x) {
  const float r = hopper::reciprocal_approx(x);
  return fmaf(fmaf(-x, r, 1.0f), r, r);
}

/// x[i] / scale[i]; kSame: all scales are scale[0]. By a product with the reciprocal, which rounds once more
/// than a division.
template <bool kSame>
__device__ __forceinline__ void divide(float (&x)[kChannels], const float (&scale)[kChannels]) {
  float least = scale[0], largest = scale[0];
  if constexpr (!kSame) {
#pragma unroll
    for (int i = 1; i < kChannels; ++i) {
      least = fminf(least, scale[i]);
      largest = fmaxf(largest, scale[i]);
    }
  }
  if (least >= 0x1p-120f && largest <= 0x1p120f) {
    const float first = reciprocal(scale[0]);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) x[i] *= kSame || i == 0 ? first : reciprocal(scale[i]);
  } else {  // the reciprocal would leave the range of fp32
#pragma unroll
    for (int i = 0; i < kChannels; ++i) x[i] = __fdiv_rn(x[i], scale[kSame ? 0 : i]);
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

/// One of the two caches of a launch.
struct Cache {
  void* rows;
  DType dtype;
  int64_t stride_block, stride_token, stride_head;
  bool computed;     ///< scales per (token, head)
  bool wide_scales;  ///< those given lie side by side, aligned to 16 bytes
  ScaleParams scale;
};

/// This lane's channels of a row, in fp32, to their slot. All lanes of the row call it together.
__device__ __forceinline__ void store_quantised(const Cache& cache, float (&x)[kChannels], bool writes,
                                                const Place& at, uint32_t head, int channel, int row_lanes) {
  float scale[kChannels];
  if (cache.computed) {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) amax = fmaxf(amax, fabsf(x[i]));
    for (int distance = row_lanes / 2; distance > 0; distance /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, distance));
    }
    scale[0] = token_scale(cache.dtype, amax);
    if (!writes) return;
    if (channel == 0) {
      cache.scale.computed[at.block * cache.scale.stride_block + at.inside * cache.scale.stride_token +
                           head * cache.scale.stride_head] = scale[0];
    }
    divide<true>(x, scale);
  } else {
    if (!writes) return;
    const float* given =
        cache.scale.given + head * cache.scale.given_stride_head + channel * cache.scale.given_stride_channel;
    if (cache.scale.given_stride_channel == 0) {
      scale[0] = __ldg(given);
      divide<true>(x, scale);
    } else {
      if (cache.wide_scales) {
#pragma unroll
        for (int i = 0; i < kChannels; i += 4) {
          *reinterpret_cast<float4*>(scale + i) = __ldg(reinterpret_cast<const float4*>(given + i));
        }
      } else {
#pragma unroll
        for (int i = 0; i < kChannels; ++i) scale[i] = __ldg(given + i * cache.scale.given_stride_channel);
      }
      divide<false>(x, scale);
    }
  }
  const int64_t target =
      at.block * cache.stride_block + at.inside * cache.stride_token + head * cache.stride_head + channel;
  uint2 stored;
  if (cache.dtype == DType::kE4m3) {
    stored = make_uint2(to_e4m3(x[0], x[1], x[2], x[3]), to_e4m3(x[4], x[5], x[6], x[7]));
  } else {
    stored = make_uint2(to_int8(x[0], x[1], x[2], x[3]), to_int8(x[4], x[5], x[6], x[7]));
  }
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(cache.rows) + target) = stored;
}

/// As append_kernel, with at least one cache in e4m3 or int8.
template <DType kType, Rotary kRotary>
__global__ void __launch_bounds__(kThreads)
    quantise_kernel(const __grid_constant__ KvAppendParams p, const __grid_constant__ Cache k,
                    const __grid_constant__ Cache v, int row_lanes) {
  const int channel = static_cast<int>(threadIdx.x) % row_lanes * kChannels;
  const Rows r = load_rows<kRotary>(p, row_lanes, channel);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool writes = writes_row<kRotary>(p, r, i);
    const Place at = writes ? place_of(p, r.slot[i]) : Place{};
    const auto store = [&](const Cache& cache, const uint4& words, bool turned, float(&x)[kChannels]) {
      if (cache.dtype != kType) {
        if (!turned) unpack<kType>(words, x);
        store_quantised(cache, x, writes, at, r.head[i], channel, row_lanes);
      } else if (writes) {
        const int64_t target = at.block * cache.stride_block + at.inside * cache.stride_token +
                               r.head[i] * cache.stride_head + channel;
        *reinterpret_cast<uint4*>(static_cast<uint16_t*>(cache.rows) + target) =
            turned ? pack<kType>(x) : words;
      }
    };
    float x[kChannels];
    const bool turned = rotate<kType, kRotary>(p.rotary, r.key[i], writes ? r.position[i] : -1, channel, x);
    store(k, r.key[i], turned, x);
    store(v, r.value[i], false, x);
  }
}

}  // namespace attnbench::cuda_append
