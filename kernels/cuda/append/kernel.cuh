// New rows of K and V to their slots of the cache, keys rotated on the way: a copy at the speed of the
// memory.
//
// A row of D channels is handled by D / 8 neighbouring lanes, 16 bytes each. Keys in NeoX order find the
// other half of their pairs in another lane of the row, by a shuffle; adjacent pairs lie within a lane.
#pragma once

#include <cuda_runtime.h>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/common/registers.cuh"

namespace attnbench::cuda_append {

inline constexpr int kThreads = 256;
inline constexpr int kChannels = 8;  ///< per lane: 16 bytes
inline constexpr int kRows = 2;      ///< per lane, of K and of V each: 64 bytes in flight

enum class Rotary { kNone, kHalves, kAdjacent };

template <DType kType>
__device__ __forceinline__ float2 unpack_pair(uint32_t word) {
  if constexpr (kType == DType::kBf16) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
}

/// Pair (x, y) turned by the angle of cosine `cos` and sine `sin`.
__device__ __forceinline__ float2 turn(float x, float y, float cos, float sin) {
  return make_float2(x * cos - y * sin, y * cos + x * sin);
}

/// This lane's channels channel .. channel + 7 of a key at `position`, turned. All lanes of the row call it
/// together;
template <DType kType, Rotary kRotary>
__device__ __forceinline__ uint4 rotate(const RotaryParams& r, const uint4& key, int position, int channel) {
  const int half = r.dim / 2;
  const uint32_t word[4] = {key.x, key.y, key.z, key.w};
  uint32_t turned[4];
  if constexpr (kRotary == Rotary::kHalves) {
    const bool second = channel >= half;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int other_lane = second ? lane - half / kChannels : lane + half / kChannels;
    uint32_t other[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) other[i] = __shfl_sync(~0u, word[i], other_lane);
    if (channel >= r.dim || position < 0) return key;
    const int64_t column = int64_t{position} * half + channel - (second ? half : 0);
    float cos[kChannels], sin[kChannels];
#pragma unroll
    for (int i = 0; i < kChannels; i += 4) {
      *reinterpret_cast<float4*>(cos + i) = __ldg(reinterpret_cast<const float4*>(r.cos + column + i));
      *reinterpret_cast<float4*>(sin + i) = __ldg(reinterpret_cast<const float4*>(r.sin + column + i));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 mine = unpack_pair<kType>(word[i]);
      const float2 theirs = unpack_pair<kType>(other[i]);
      // The second of a pair is the first of the pair turned the other way.
      const float sign = second ? -1.0f : 1.0f;
      turned[i] = hopper::pack_pair<kType>(turn(mine.x, theirs.x, cos[2 * i], sign * sin[2 * i]).x,
                                           turn(mine.y, theirs.y, cos[2 * i + 1], sign * sin[2 * i + 1]).x);
    }
  } else {
    if (channel >= r.dim || position < 0) return key;
    const int64_t column = int64_t{position} * half + channel / 2;
    const float4 cos = __ldg(reinterpret_cast<const float4*>(r.cos + column));
    const float4 sin = __ldg(reinterpret_cast<const float4*>(r.sin + column));
    const float c[4] = {cos.x, cos.y, cos.z, cos.w};
    const float s[4] = {sin.x, sin.y, sin.z, sin.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<kType>(word[i]);
      const float2 to = turn(pair.x, pair.y, c[i], s[i]);
      turned[i] = hopper::pack_pair<kType>(to.x, to.y);
    }
  }
  return make_uint4(turned[0], turned[1], turned[2], turned[3]);
}

/// `row_lanes`: a power of two, at least head_dim / 8. Rows are (token, KV head) pairs, heads within tokens;
/// a block does kThreads / row_lanes * kRows of them.
template <DType kType, Rotary kRotary>
__global__ void __launch_bounds__(kThreads)
    append_kernel(const __grid_constant__ KvAppendParams p, int row_lanes) {
  const int lane_in_row = static_cast<int>(threadIdx.x) % row_lanes;
  const int rows_per_block = kThreads / row_lanes;
  const int channel = lane_in_row * kChannels;
  const uint32_t heads = static_cast<uint32_t>(p.num_heads_kv);
  const uint32_t rows = static_cast<uint32_t>(p.num_tokens) * heads;
  const uint32_t first = blockIdx.x * static_cast<uint32_t>(rows_per_block * kRows) + threadIdx.x / row_lanes;
  const uint32_t capacity = static_cast<uint32_t>(p.num_blocks) * static_cast<uint32_t>(p.block_size);

  uint4 key[kRows], value[kRows];
  int64_t slot[kRows];
  int32_t position[kRows];
  uint32_t head[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const uint32_t row = first + i * rows_per_block;
    const bool exists = row < rows && channel < p.head_dim;
    const uint32_t token = row / heads;
    head[i] = row - token * heads;
    slot[i] = exists ? p.slot_mapping[token] : -1;
    position[i] = 0;
    key[i] = value[i] = uint4{};
    if (!exists) continue;
    key[i] =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.key) + token * p.key_stride_token +
                                        head[i] * p.key_stride_head + channel);
    value[i] =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.value) + token * p.value_stride_token +
                                        head[i] * p.value_stride_head + channel);
    if constexpr (kRotary != Rotary::kNone) position[i] = p.positions[token];
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    // -1 skips by contract; nothing may be touched through a slot or a position outside either.
    bool writes = slot[i] >= 0 && slot[i] < capacity;
    if constexpr (kRotary != Rotary::kNone) {
      writes = writes && position[i] >= 0 && position[i] < p.rotary.positions;
      key[i] = rotate<kType, kRotary>(p.rotary, key[i], writes ? position[i] : -1, channel);
    }
    if (!writes) continue;
    const uint32_t block = static_cast<uint32_t>(slot[i]) / static_cast<uint32_t>(p.block_size);
    const uint32_t inside = static_cast<uint32_t>(slot[i]) - block * static_cast<uint32_t>(p.block_size);
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.k_cache) + block * p.k_stride_block +
                              inside * p.k_stride_token + head[i] * p.k_stride_head + channel) = key[i];
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.v_cache) + block * p.v_stride_block +
                              inside * p.v_stride_token + head[i] * p.v_stride_head + channel) = value[i];
  }
}

}  // namespace attnbench::cuda_append
