// Merges the partial states of a row: those of splits (split.h), and those of a cascade (cascade.h).
#pragma once

#include "kernels/common/score.h"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90_prefill/cascade_source.cuh"

namespace attnbench::sm90_prefill {

/// States that a warp has in flight.
ATTNBENCH_HD constexpr int batch_of(int head_dim) { return head_dim == 256 ? 4 : 8; }

/// Stores kCount channels, rounded to kType.
template <DType kType, int kCount>
__device__ __forceinline__ void store_channels(uint16_t* out, const float (&o)[kCount]) {
  uint32_t words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) words[i] = hopper::pack_pair<kType>(o[2 * i], o[2 * i + 1]);
  if constexpr (kCount == 2) {
    *reinterpret_cast<uint32_t*>(out) = words[0];
  } else if constexpr (kCount == 4) {
    *reinterpret_cast<uint2*>(out) = make_uint2(words[0], words[1]);
  } else {
    *reinterpret_cast<uint4*>(out) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// A row of a split tile, and its states.
struct Row {
  bool exists;
  int splits;     ///< with the suffix of a cascade
  int64_t first;  ///< row of its first state; those of further splits lie `stride` rows apart
  int64_t q_row;
  int head;
  int64_t suffix = 0;  ///< cascade: row of the suffix's state, the last one
};

/// Merges a row: a warp, of which each lane has kHeadDim / 32 neighbouring channels. Sums run in the order of
/// the splits, so results repeat bit for bit.
template <int kHeadDim, bool kCascade>
__device__ __forceinline__ void merge_row(const KernelParams& p, DType dtype, const Row& row, int64_t stride,
                                          int lane) {
  constexpr int kVector = kHeadDim / 32;
  constexpr int kBatch = batch_of(kHeadDim);
  float o[kVector] = {};
  float top = -INFINITY, total = 0.0f;  // weights are 2^(reference - top)
#pragma unroll 1
  for (int first = 0; first < row.splits; first += kBatch) {
    const int left = row.splits - first;
    const int64_t at = row.first + first * stride;
    const int mine = lane % kBatch;
    float v[kBatch][kVector];
    const float* next = p.partial_out + at * kHeadDim + lane * kVector;
    const float* suffix = kCascade ? p.partial_out + row.suffix * kHeadDim + lane * kVector : nullptr;
#pragma unroll
    for (int j = 0; j < kBatch; ++j, next += stride * kHeadDim) {
      const float* from = kCascade && j == left - 1 ? suffix : next;
#pragma unroll
      for (int i = 0; i < kVector; i += 2) {
        const float2 x = j < left ? __ldcg(reinterpret_cast<const float2*>(from + i)) : float2{};
        v[j][i] = x.x;
        v[j][i + 1] = x.y;
      }
    }
    const int64_t of_sum = kCascade && mine == left - 1 ? row.suffix : at + mine * stride;
    const float2 sum = mine < left ? __ldcg(p.partial_sum + of_sum) : float2{-INFINITY, 0.0f};
    float higher = fmaxf(top, sum.x);
#pragma unroll
    for (int step = kBatch / 2; step > 0; step /= 2) {
      higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, step));
    }
    const float base = higher == -INFINITY ? 0.0f : higher;
    const float kept = hopper::exp2_approx(top - base);
    const float weight = hopper::exp2_approx(sum.x - base);
    top = higher;
    total *= kept;
#pragma unroll
    for (int i = 0; i < kVector; ++i) o[i] *= kept;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float w = __shfl_sync(~0u, weight, j);
      total = fmaf(w, __shfl_sync(~0u, sum.y, j), total);
#pragma unroll
      for (int i = 0; i < kVector; ++i) o[i] = fmaf(w, v[j][i], o[i]);
    }
  }
  // The sink has no value. If a row sees no key, it alone is the denominator.
  const float sink = p.sinks != nullptr ? __ldg(p.sinks + row.head) * kLog2E : -INFINITY;
  const float higher = fmaxf(top, sink);
  const float base = higher == -INFINITY ? 0.0f : higher;
  const float kept = hopper::exp2_approx(top - base);
  total = total * kept + hopper::exp2_approx(sink - base);
  const float normaliser = total == 0.0f ? 0.0f : kept * hopper::reciprocal_approx(total);  // NaN stays NaN
#pragma unroll
  for (int i = 0; i < kVector; ++i) o[i] *= normaliser;
  uint16_t* out = static_cast<uint16_t*>(p.out) + row.q_row * p.out_stride_token +
                  row.head * p.out_stride_head + lane * kVector;
  if (dtype == DType::kBf16) {
    store_channels<DType::kBf16>(out, o);
  } else {
    store_channels<DType::kFp16>(out, o);
  }
  if (lane == 0) {
    p.lse[row.head * p.lse_stride_head + row.q_row] =
        total == 0.0f ? -INFINITY : (base + __log2f(total)) * kLn2;
  }
}

/// The row of a query and head in a cascade. The states of its prefix lie num_head_tiles * block_m rows apart.
__device__ __forceinline__ Row row_of_cascade(const KernelParams& p, const CascadePrefix& prefix, int block_m,
                                              int64_t q_row, int head) {
  const int token = static_cast<int>(q_row) - prefix.q_begin;
  const int tile = token / p.tokens_per_tile;
  const int head_tile = head / p.heads_per_tile;
  const int row_in_tile =
      (token - tile * p.tokens_per_tile) * p.heads_per_tile + head - head_tile * p.heads_per_tile;
  const int64_t heads = int64_t{p.num_head_tiles} * p.heads_per_tile;
  return {true,
          prefix.splits + 1,
          (int64_t{tile} * prefix.splits * p.num_head_tiles + head_tile) * block_m + row_in_tile,
          q_row,
          head,
          p.suffix_row + q_row * heads + head};
}

}  // namespace attnbench::sm90_prefill
