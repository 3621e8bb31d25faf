// Writes accumulators to O and LSE in global memory, through registers only.
#pragma once

#include "kernels/cuda/common/absent.cuh"
#include "kernels/cuda/common/quad.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/softmax.cuh"

namespace attnbench::sm90_prefill {

/// The query head of row `row` of a tile.
__device__ __forceinline__ int head_of_row(const KernelParams& p, const TileRows& tile, int row) {
  return (tile.head - token_of_row(p, row)) * p.heads_per_tile + row;
}

/// Row `row` of a split's or suffix's partial state.
template <Shape kShape>
__device__ __forceinline__ int64_t row_of_state(const KernelParams& p, const TileRows& tile, int row) {
  if constexpr (kShape.cascade) {
    if (tile.state == kSuffixState) {
      const int64_t heads = p.num_head_tiles * p.heads_per_tile;
      return p.suffix_row + (tile.q_row + token_of_row(p, row)) * heads + head_of_row(p, tile, row);
    }
  }
  const int state = (tile.state - 1) * p.num_head_tiles + tile.head;
  return static_cast<int64_t>(state) * kShape.block_m + row;
}

/// Writes the reference and the sum of weights of a state's row, after the row's outputs. Where another block
/// waits for them (Derived::kHandsOver), they tell it that the outputs are there. `writes`: one lane's task. All
/// lanes of a warp call it.
template <Shape kShape>
__device__ __forceinline__ void store_sum(const KernelParams& p, int64_t state_row, float reference,
                                          float sum, bool writes) {
  if constexpr (Derived<kShape>::kHandsOver) {
    __syncwarp();  // orders the outputs before the fence, and that orders them before the words
    if (writes) {
      hopper::fence_words();
      hopper::store_words(p.partial_sum + state_row, hopper::present(reference), hopper::present(sum));
    }
  } else {
    if (writes) p.partial_sum[state_row] = make_float2(reference, sum);
  }
}

/// Writes this thread's share of a split's partial state. A quad's stores cover whole sectors.
template <Shape kShape>
__device__ __forceinline__ void store_state(const KernelParams& p, const TileRows& tile, int thread_row,
                                            const float (&o)[Derived<kShape>::kDimV / 2],
                                            const OnlineSoftmax& softmax, float factor, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = thread_row + 8 * h;
    const bool exists = token_of_row(p, row) < tile.q_tokens;
    const int64_t state_row = row_of_state<kShape>(p, tile, row);
    float* out = p.partial_out + state_row * Derived<kShape>::kDimV + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < Derived<kShape>::kDimV / 8; ++c) {
      const int i = 4 * c + 2 * h;
      if (exists) *reinterpret_cast<float2*>(out + 8 * c) = make_float2(o[i] * factor, o[i + 1] * factor);
    }
    const float sum = hopper::quad_reduce(softmax.sum[h], [](float a, float b) { return a + b; });
    store_sum<kShape>(p, state_row, -softmax.offset[h], sum, exists && lane % 4 == 0);
  }
}

/// Writes this thread's share of O (normalised here, and rounded) and LSE: rows `thread_row` and thread_row +
/// 8 of the tile. Row r is token r / heads_per_tile, head r % heads_per_tile. Rows past the tile's last token
/// belong to the next sequence or to none, and are not written. A split leaves its partial state instead.
/// `factor`: of the outputs, 1 without descales.
///
/// The accumulators give each lane 2 neighbouring channels of every 8. Transposing over the quad makes that 8
/// of every 32, which is one 16-byte store. The stores of a quad cover 64 contiguous bytes: whole sectors,
/// without shared memory.
template <Shape kShape>
__device__ __forceinline__ void store_rows(const KernelParams& p, const TileRows& tile, int thread_row,
                                           const float (&o)[Derived<kShape>::kDimV / 2],
                                           const OnlineSoftmax& softmax, float factor, int lane) {
  if constexpr (kShape.split) {
    if (__any_sync(~0u, tile.state != 0)) {  // the vote tells the compiler that all lanes go one way
      store_state<kShape>(p, tile, thread_row, o, softmax, factor, lane);
      return;
    }
  }
  float sink[2] = {-INFINITY, -INFINITY};
  if (__builtin_expect(p.sinks != nullptr, 0)) {
#pragma unroll
    for (int h = 0; h < 2; ++h) sink[h] = __ldg(p.sinks + head_of_row(p, tile, thread_row + 8 * h));
  }
  float normaliser[2], lse[2];
  softmax.finish(normaliser, lse, sink);
  if constexpr (kShape.e4m3_kv) {
#pragma unroll
    for (float& n : normaliser) n *= factor;
  }
  const int quad_lane = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int token = token_of_row(p, thread_row + 8 * h);
    const bool exists = token < tile.q_tokens;
    const int64_t q_row = tile.q_row + token;
    const int64_t head = head_of_row(p, tile, thread_row + 8 * h);
    uint16_t* out = static_cast<uint16_t*>(p.out) + q_row * p.out_stride_token + head * p.out_stride_head;
#pragma unroll
    for (int c = 0; c < Derived<kShape>::kDimV / 32; ++c) {
      uint32_t word[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = 4 * (4 * c + k) + 2 * h;
        word[k] = hopper::pack_pair<kShape.dtype>(o[i] * normaliser[h], o[i + 1] * normaliser[h]);
      }
      const uint4 channels = hopper::quad_transpose(word[0], word[1], word[2], word[3], lane);
      if (exists) *reinterpret_cast<uint4*>(out + 32 * c + 8 * quad_lane) = channels;
    }
    if (exists && quad_lane == 0) p.lse[head * p.lse_stride_head + q_row] = lse[h];
  }
}

/// The same for rows that see no key, in little code.
template <Shape kShape>
__device__ __forceinline__ void store_unseen(const KernelParams& p, const TileRows& tile, int thread_row,
                                             int lane) {
#pragma unroll 1
  for (int h = 0; h < 2; ++h) {
    const int row = thread_row + 8 * h;
    const int token = token_of_row(p, row);
    const bool exists = token < tile.q_tokens;
    if (!exists && !Derived<kShape>::kHandsOver) break;  // store_sum wants all lanes
    if constexpr (kShape.split) {
      if (tile.state != 0) {
        const int64_t state_row = row_of_state<kShape>(p, tile, row);
        float* out = p.partial_out + state_row * Derived<kShape>::kDimV;
#pragma unroll 1
        for (int c = lane % 4 * 4; exists && c < Derived<kShape>::kDimV; c += 16)
          *reinterpret_cast<float4*>(out + c) = float4{};
        store_sum<kShape>(p, state_row, -INFINITY, 0.0f, exists && lane % 4 == 0);
        continue;
      }
    }
    if (!exists) break;
    const int64_t q_row = tile.q_row + token;
    const int64_t head = head_of_row(p, tile, row);
    uint16_t* out = static_cast<uint16_t*>(p.out) + q_row * p.out_stride_token + head * p.out_stride_head;
#pragma unroll 1
    for (int c = lane % 4 * 8; c < Derived<kShape>::kDimV; c += 32)
      *reinterpret_cast<uint4*>(out + c) = uint4{};
    if (lane % 4 == 0)
      p.lse[head * p.lse_stride_head + q_row] = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
  }
}

}  // namespace attnbench::sm90_prefill
