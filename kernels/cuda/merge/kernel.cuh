// Merges partial states of attention into one, at the speed of the memory.
//
// A thread has 16 bytes of a row. It requests them and the LSEs of kBlock states at once, and adds them up by
// their weights. If there are more states, it goes on with the next kBlock, with weights relative to a new
// maximum. A block has neighbouring rows of one head, because their LSEs lie side by side in memory.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "kernels/common/score.h"
#include "kernels/cuda/common/registers.cuh"

namespace attnbench::cuda_merge {

inline constexpr int kThreads = 256;   ///< of a block, at most
inline constexpr int kMostStates = 8;  ///< states that a thread has in flight, at most

/// Blocks per multiprocessor: few, so that a thread has many registers. With fewer registers the compiler
/// would use the first state before it requests the last.
template <int kBlock>
inline constexpr int kBlocks = kBlock == kMostStates ? 4
                               : kBlock == 4         ? 6
                                                     : 8;

/// Channels in 16 bytes of a row.
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

/// Stores kCount channels, rounded to the type of the output. All channels of a 16-bit type go in one store:
/// each of two stores of 8 bytes would leave half of an L2 sector to the other.
template <int kCount>
__device__ __forceinline__ void store(DType type, void* out, int64_t at, const float (&x)[kCount]) {
  if (type == DType::kFp32) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<float4*>(static_cast<float*>(out) + at + i) =
          make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
    return;
  }
  uint32_t words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    words[i] = type == DType::kBf16 ? hopper::pack_pair<DType::kBf16>(x[2 * i], x[2 * i + 1])
                                    : hopper::pack_pair<DType::kFp16>(x[2 * i], x[2 * i + 1]);
  }
  auto* to = static_cast<uint16_t*>(out) + at;
  if constexpr (kCount == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  }
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

  __device__ __forceinline__ Piece(const MergeStatesParams& params, uint32_t row_, uint32_t head_,
                                   uint32_t piece_)
      : p(params), row(row_), head(head_), piece(piece_) {}

  /// Requests the kBlock states from `first` on.
  __device__ __forceinline__ void load(int first) {
    const Element* from = static_cast<const Element*>(p.partial_out) + first * p.partial_stride_state +
                          row * p.partial_stride_token + head * p.partial_stride_head + piece * kChannels;
    const float* lse =
        p.partial_lse + first * p.lse_stride_state + row * p.lse_stride_token + head * p.lse_stride_head;
#pragma unroll
    for (int s = 0; s < kBlock; ++s) {
      const bool exists = first + s < p.num_states;
      words[s] = exists ? __ldcs(reinterpret_cast<const uint4*>(from)) : uint4{};
      from += p.partial_stride_state;
    }
    // The LSEs are requested last, although they are used first: no other request should wait for that use.
#pragma unroll
    for (int s = 0; s < kBlock; ++s) {
      const bool exists = first + s < p.num_states;
      x[s] = exists ? __ldg(lse) : -INFINITY;
      lse += p.lse_stride_state;
    }
  }

  /// Adds the requested states to the sums.
  __device__ __forceinline__ void add() {
    float higher = top;
#pragma unroll
    for (int s = 0; s < kBlock; ++s) higher = x[s] > higher ? x[s] : higher;
    // What was summed so far shrinks by exp(top - higher), and to 0 before the first state that saw a key.
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
    // The largest state weighs 1, so the reciprocal neither overflows nor is denormal.
    const float approximate = hopper::reciprocal_approx(sum);
    const float factor = sum == 0.0f ? 0.0f : fmaf(fmaf(-sum, approximate, 1.0f), approximate, approximate);
#pragma unroll
    for (int i = 0; i < kChannels; ++i) o[i] *= factor;
    cuda_merge::store(p.dtype_out, p.out,
                      row * p.out_stride_token + head * p.out_stride_head + piece * kChannels, o);
  }
};

/// Thread (x, y) has piece x of row y of its block. Block (x, y, z) has blockDim.y rows of head x, from row
/// (z * gridDim.y + y) * blockDim.y on.
template <DType kPartial, int kBlock>
__global__ void __launch_bounds__(kThreads, kBlocks<kBlock>)
    merge_kernel(const __grid_constant__ MergeStatesParams p) {
  const uint32_t row = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
  if (row >= p.num_rows) return;
  Piece<kPartial, kBlock> piece(p, row, blockIdx.x, threadIdx.x);
  int state = 0;
  do {
    piece.load(state);
    piece.add();
    state += kBlock;
  } while (kBlock == kMostStates && state < p.num_states);
  piece.store();
}

}  // namespace attnbench::cuda_merge
