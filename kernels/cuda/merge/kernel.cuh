// Partial states of attention become one, at the speed of the memory.
//
// A thread has 16 bytes of a row: it asks for them and for the LSEs of kBlock states at once, weighs them,
// and goes on to the next kBlock, if there are more, with weights relative to a new maximum.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "kernels/common/score.h"
#include "kernels/cuda/common/registers.cuh"

namespace attnbench::cuda_merge {

inline constexpr int kThreads = 256;

/// Channels in 16 bytes.
ATTNBENCH_HD constexpr int channels_of(DType t) { return t == DType::kFp32 ? 4 : 8; }

template <DType kType>
__device__ __forceinline__ void unpack(const uint4& words, float (&x)[channels_of(kType)]) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::kFp32) {
      x[i] = __uint_as_float(word[i]);
    } else if constexpr (kType == DType::kBf16) {
      x[2 * i] = __uint_as_float(word[i] << 16);
      x[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&word[i]));
      x[2 * i] = pair.x;
      x[2 * i + 1] = pair.y;
    }
  }
}

/// Four channels at a time, rounded to the type of the output.
__device__ __forceinline__ void store_four(DType type, void* out, int64_t at, const float* x) {
  if (type == DType::kFp32) {
    *reinterpret_cast<float4*>(static_cast<float*>(out) + at) = make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
  const uint2 words = type == DType::kBf16 ? make_uint2(hopper::pack_pair<DType::kBf16>(x[0], x[1]),
                                                        hopper::pack_pair<DType::kBf16>(x[2], x[3]))
                                           : make_uint2(hopper::pack_pair<DType::kFp16>(x[0], x[1]),
                                                        hopper::pack_pair<DType::kFp16>(x[2], x[3]));
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(out) + at) = words;
}

/// A thread's piece of the states: 16 bytes of a row and head.
template <DType kPartial, int kBlock>
struct Piece {
  static constexpr int kChannels = channels_of(kPartial);
  using Element = std::conditional_t<kPartial == DType::kFp32, float, uint16_t>;

  const MergeStatesParams& p;
  uint32_t row, head, piece;
  float x[kBlock];
  uint4 words[kBlock];
  float o[kChannels] = {};
  float top = -INFINITY, sum = 0.0f;

  /// `number` counts pieces within heads within rows, `pieces` those of a row and head.
  __device__ __forceinline__ Piece(const MergeStatesParams& params, uint32_t number, uint32_t pieces)
      : p(params) {
    const uint32_t item = number / pieces;
    piece = number - item * pieces;
    row = item / static_cast<uint32_t>(p.num_heads);
    head = item - row * static_cast<uint32_t>(p.num_heads);
  }

  /// Asks for the states from `first` on.
  __device__ __forceinline__ void load(int first) {
    const float* lse = p.partial_lse + row * p.lse_stride_token + head * p.lse_stride_head;
    const Element* from = static_cast<const Element*>(p.partial_out) + row * p.partial_stride_token +
                          head * p.partial_stride_head + piece * kChannels;
#pragma unroll
    for (int s = 0; s < kBlock; ++s) {
      const bool exists = first + s < p.num_states;
      x[s] = exists ? __ldg(lse + (first + s) * p.lse_stride_state) : -INFINITY;
      words[s] = exists ? __ldcs(reinterpret_cast<const uint4*>(from + (first + s) * p.partial_stride_state))
                        : uint4{};
    }
  }

  /// Adds what was asked for.
  __device__ __forceinline__ void add() {
    float higher = top;
#pragma unroll
    for (int s = 0; s < kBlock; ++s) higher = x[s] > higher ? x[s] : higher;
    // What was summed so far weighs exp(top - higher) of itself; before the first state that saw a key
    // nothing.
    const float kept = top == -INFINITY ? 0.0f : hopper::exp2_approx((top - higher) * kLog2E);
    sum *= kept;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) o[i] *= kept;
#pragma unroll
    for (int s = 0; s < kBlock; ++s) {
      if (x[s] == -INFINITY) continue;  // its O may be NaN, and 0 * NaN is NaN
      const float weight = hopper::exp2_approx((x[s] - higher) * kLog2E);
      float v[kChannels];
      unpack<kPartial>(words[s], v);
      sum += weight;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) o[i] = fmaf(weight, v[i], o[i]);
    }
    top = higher;
  }

  __device__ __forceinline__ void store() {
    if (piece == 0) p.out_lse[head * p.out_lse_stride_head + row] = lse_of(top, sum);
    const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) o[i] *= factor;
    const int64_t to = row * p.out_stride_token + head * p.out_stride_head + piece * kChannels;
#pragma unroll
    for (int i = 0; i < kChannels; i += 4) store_four(p.dtype_out, p.out, to + i, o + i);
  }
};

/// `pieces`: of 16 bytes, in a row of the partial outputs. A thread has one piece, and takes kBlock states of
/// it at a time; or two pieces of at most kBlock states.
template <DType kPartial, int kBlock, int kPieces>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ MergeStatesParams p, uint32_t pieces) {
  const uint64_t first = uint64_t{blockIdx.x} * (kThreads * kPieces) + threadIdx.x;
  const uint64_t all = static_cast<uint64_t>(p.num_rows) * static_cast<uint32_t>(p.num_heads) * pieces;
  if (first >= all) return;
  Piece<kPartial, kBlock> piece(p, static_cast<uint32_t>(first), pieces);
  if constexpr (kPieces == 2) {
    const bool both = first + kThreads < all;
    Piece<kPartial, kBlock> other(p, static_cast<uint32_t>(both ? first + kThreads : first), pieces);
    piece.load(0);
    other.load(0);
    piece.add();
    piece.store();
    if (!both) return;
    other.add();
    other.store();
  } else {
    for (int state = 0; state < p.num_states; state += kBlock) {
      piece.load(state);
      piece.add();
    }
    piece.store();
  }
}

}  // namespace attnbench::cuda_merge
