// What the lanes of alike_kernel divide their rows by: given scales, or scales computed from the largest
// magnitudes.
#pragma once

#include "kernels/cuda/append/alike_lane.cuh"
#include "kernels/cuda/append/scales.cuh"

namespace attnbench::cuda_append::alike {

/// Elementwise: the larger magnitude of the pairs of 16-bit numbers in `a` and `b`, of either sign. A NaN
/// gives way to a number.
template <DType kType>
__device__ __forceinline__ uint32_t larger_pair(uint32_t a, uint32_t b) {
  uint32_t larger;
  if constexpr (kType == DType::kBf16) {
    asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  } else {
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  }
  return larger;
}

/// The largest magnitude of a lane's channels.
template <DType kType>
__device__ __forceinline__ float largest_packed(const uint4 (&words)[kChunks]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
  float x[kChannels], y[kChannels];
  unpack<kType>(words[0], x);
  unpack<kType>(words[1], y);
  return fmaxf(largest_of(x), largest_of(y));
#else
  uint32_t of[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    of[c] = larger_pair<kType>(larger_pair<kType>(words[c].x, words[c].y),
                               larger_pair<kType>(words[c].z, words[c].w));
  }
  const float2 pair = hopper::unpack_pair<kType>(larger_pair<kType>(of[0], of[1]));
  return fmaxf(fmaxf(0.0f, fabsf(pair.x)), fabsf(pair.y));
#endif
}

/// The divisors of a lane's rows of K or of V.
template <Scales kScales>
struct Divisors {
  static constexpr bool kEach = kScales == Scales::kPerChannel;  ///< one per channel, else one for all
  float by[kEach ? kChunks : 1][kEach ? kChannels : 1];          ///< scales; after invert() their reciprocals
  float factor = 1.0f;                                           ///< range_factor of the one divisor

  /// Loads scales that are given.
  __device__ __forceinline__ void load(const Side& side, const Lane& lane) {
    if constexpr (kScales == Scales::kComputed) return;
    const float* given = side.given + lane.head * side.given_stride_head;
    if constexpr (kScales == Scales::kPerHead) by[0][0] = __ldg(given);
    if constexpr (kEach) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const auto* from = reinterpret_cast<const float4*>(given + lane.channel[c]);
#pragma unroll
        for (int i = 0; i < kChannels; i += 4) {
          *reinterpret_cast<float4*>(&by[c][i]) =
              lane.exists[c] ? __ldg(from + i / 4) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        }
      }
    }
  }

  /// Inverts scales that are given. Returns false where products with a reciprocal also need a range_factor.
  __device__ __forceinline__ bool invert() {
    if constexpr (kScales == Scales::kComputed) return true;
    float least = 1.0f, most = 1.0f;
#pragma unroll
    for (auto& row : by) {
#pragma unroll
      for (float s : row) {
        least = fminf(least, fabsf(s));
        most = fmaxf(most, fabsf(s));
      }
    }
    if (__builtin_expect(least >= 0x1p-120f && most <= 0x1p120f, 1)) {
#pragma unroll
      for (auto& row : by) {
#pragma unroll
        for (float& s : row) s = usual_reciprocal(s);
      }
      return true;
    }
#pragma unroll
    for (auto& row : by) {
#pragma unroll
      for (float& s : row) {
        factor = range_factor(s);
        s = reciprocal(s * factor);
      }
    }
    return false;
  }

  __device__ __forceinline__ void divide(float (&x)[kChunks][kChannels]) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < kChannels; ++i) x[c][i] *= by[kEach ? c : 0][kEach ? i : 0];
    }
  }

  /// Completes divide() where not all scales are usual (scales.cuh), by their range_factors.
  __device__ __forceinline__ void divide_more(const Side& side, const Lane& lane,
                                              float (&x)[kChunks][kChannels]) const {
    if constexpr (!kEach) {
#pragma unroll
      for (int i = 0; i < kChunks * kChannels; ++i) x[i / kChannels][i % kChannels] *= factor;
      return;
    }
    // This is rare, so the code is small rather than fast.
    const float* given = side.given + lane.head * side.given_stride_head;
    float n[kChunks * kChannels];
#pragma unroll
    for (int i = 0; i < kChunks * kChannels; ++i) n[i] = x[i / kChannels][i % kChannels];
#pragma unroll 1
    for (int i = 0; i < kChunks * kChannels; ++i) {
      const bool second = i >= kChannels;
      if (!(second ? lane.exists[1] : lane.exists[0])) break;
      n[i] *= range_factor(__ldg(given + (second ? lane.channel[1] : lane.channel[0]) + i % kChannels));
    }
#pragma unroll
    for (int i = 0; i < kChunks * kChannels; ++i) x[i / kChannels][i % kChannels] = n[i];
  }
};

/// Computes a token's scales from its largest magnitudes. Sets k_by to divide by K's scale, and v_by by V's
/// where both are computed. Writes the scales to the cache if `writes`. Returns true if products need no
/// range_factor.
template <DType kType, DType kTo, Scales kOfV>
__device__ __forceinline__ bool compute_scales(const Params& p, const Lane& lane,
                                               const float (&k)[kChunks][kChannels],
                                               const uint4 (&v)[kChunks], bool writes, uint32_t block,
                                               uint32_t inside, Divisors<Scales::kComputed>& k_by,
                                               Divisors<kOfV>& v_by) {
  constexpr bool kBoth = kOfV == Scales::kComputed;
  // Where both are computed, even lanes find K's maximum and odd lanes V's.
  const bool odd = kBoth && lane.row_lane % 2 == 1;
  float amax = fmaxf(largest_of(k[0]), largest_of(k[1]));
  if constexpr (kBoth) {
    const float v_max = largest_packed<kType>(v);
    const float theirs = __shfl_xor_sync(~0u, odd ? amax : v_max, 1);
    amax = fmaxf(odd ? v_max : amax, theirs);
  }
  for (uint32_t distance = (1u << p.row_lanes_log2) / 2; distance > (kBoth ? 1 : 0); distance /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, distance));
  }
  float scale, by, factor = 1.0f;
  const bool usual = __all_sync(~0u, has_usual_scale(amax));
  if (__builtin_expect(usual, 1)) {
    scale = usual_token_scale(kTo, amax);
    by = usual_reciprocal(scale);
  } else {
    scale = token_scale(kTo, amax);
    factor = range_factor(scale);
    by = reciprocal(scale * factor);
  }
  k_by.by[0][0] = by;
  k_by.factor = factor;
  if constexpr (kBoth) {
    const float other_by = __shfl_xor_sync(~0u, by, 1);
    const float other_factor = usual ? 1.0f : __shfl_xor_sync(~0u, factor, 1);
    k_by.by[0][0] = odd ? other_by : by;
    v_by.by[0][0] = odd ? by : other_by;
    k_by.factor = odd ? other_factor : factor;
    v_by.factor = odd ? factor : other_factor;
  }
  if (writes && lane.row_lane < (kBoth ? 2 : 1)) {
    char* to = odd ? p.v.computed : p.k.computed;
    *reinterpret_cast<float*>(to + uint64_t{lane.head} * p.scale_stride_head +
                              uint64_t{block} * p.scale_stride_block +
                              uint64_t{inside} * p.scale_stride_token) = scale;
  }
  return usual;
}

}  // namespace attnbench::cuda_append::alike
