// Writes new rows of K and V to their cache slots and rotates keys on the way: a copy at the speed of the
// memory.
//
// Words: a *row* is the D channels of one head of one token. D / 8 neighbouring lanes handle a row, 16 bytes
// each. In NeoX order the other half of a lane's pairs is in another lane of the row and comes by a shuffle.
// Adjacent pairs lie within a lane.
#pragma once

#include <cuda_runtime.h>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/common/registers.cuh"

namespace attnbench::cuda_append {

inline constexpr int kThreads = 256;
inline constexpr int kChannels = 8;  ///< channels per lane: 16 bytes
inline constexpr int kRows = 2;      ///< rows per lane, of K and of V each: 64 bytes in flight

/// Which channels of a key form pairs: i and i + dim / 2 (NeoX), or 2 i and 2 i + 1.
enum class Rotary { kNone, kHalves, kAdjacent };

/// Lanes that a row takes, a power of two. Host code.
inline int lanes_of_row(const KvAppendParams& p) {
  int lanes = 1;
  while (lanes * kChannels < p.head_dim) lanes *= 2;
  return lanes;
}

/// The pair (x, y) rotated by the angle with cosine `cos` and sine `sin`.
__device__ __forceinline__ float2 turn(float x, float y, float cos, float sin) {
  return make_float2(x * cos - y * sin, y * cos + x * sin);
}

template <DType kType>
__device__ __forceinline__ void unpack(const uint4& words, float (&x)[kChannels]) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = hopper::unpack_pair<kType>(word[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

template <DType kType>
__device__ __forceinline__ uint4 pack(const float (&x)[kChannels]) {
  return make_uint4(hopper::pack_pair<kType>(x[0], x[1]), hopper::pack_pair<kType>(x[2], x[3]),
                    hopper::pack_pair<kType>(x[4], x[5]), hopper::pack_pair<kType>(x[6], x[7]));
}

/// Rotates this lane's channels channel .. channel + 7 of a key at `position` and writes them to `x`. All
/// lanes of the warp call it together. Returns false, without `x`, where the channels are not rotated or the
/// position is negative.
template <DType kType, Rotary kRotary>
__device__ __forceinline__ bool rotate(const RotaryParams& r, const uint4& key, int position, int channel,
                                       float (&x)[kChannels]) {
  const int half = r.dim / 2;
  if constexpr (kRotary == Rotary::kNone) return false;
  if constexpr (kRotary == Rotary::kHalves) {
    const bool second = channel >= half;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int other_lane = second ? lane - half / kChannels : lane + half / kChannels;
    uint4 other;
    other.x = __shfl_sync(~0u, key.x, other_lane);
    other.y = __shfl_sync(~0u, key.y, other_lane);
    other.z = __shfl_sync(~0u, key.z, other_lane);
    other.w = __shfl_sync(~0u, key.w, other_lane);
    if (channel >= r.dim || position < 0) return false;
    const int64_t column = int64_t{position} * half + channel - (second ? half : 0);
    float cos[kChannels], sin[kChannels], theirs[kChannels];
#pragma unroll
    for (int i = 0; i < kChannels; i += 4) {
      *reinterpret_cast<float4*>(cos + i) = __ldg(reinterpret_cast<const float4*>(r.cos + column + i));
      *reinterpret_cast<float4*>(sin + i) = __ldg(reinterpret_cast<const float4*>(r.sin + column + i));
    }
    unpack<kType>(key, x);
    unpack<kType>(other, theirs);
    // The second number of a pair is the first of the swapped pair, rotated the other way.
    const float sign = second ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) x[i] = turn(x[i], theirs[i], cos[i], sign * sin[i]).x;
  }
  if constexpr (kRotary == Rotary::kAdjacent) {
    if (channel >= r.dim || position < 0) return false;
    const int64_t column = int64_t{position} * half + channel / 2;
    const float4 cos = __ldg(reinterpret_cast<const float4*>(r.cos + column));
    const float4 sin = __ldg(reinterpret_cast<const float4*>(r.sin + column));
    const float c[4] = {cos.x, cos.y, cos.z, cos.w};
    const float s[4] = {sin.x, sin.y, sin.z, sin.w};
    unpack<kType>(key, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 to = turn(x[2 * i], x[2 * i + 1], c[i], s[i]);
      x[2 * i] = to.x;
      x[2 * i + 1] = to.y;
    }
  }
  return true;
}

/// The rows of a lane, loaded from `key` and `value`, with their slots, positions and heads.
struct Rows {
  uint4 key[kRows], value[kRows];
  int64_t slot[kRows];  ///< negative: the row does not exist, or is skipped
  int32_t position[kRows];
  uint32_t head[kRows];
};

/// Loads this lane's rows. `row_lanes`: a power of two, at least head_dim / 8. Rows are (token, KV head)
/// pairs, heads within tokens. A block handles kThreads / row_lanes * kRows of them.
template <Rotary kRotary>
__device__ __forceinline__ Rows load_rows(const KvAppendParams& p, int row_lanes, int channel) {
  const int rows_per_block = kThreads / row_lanes;
  const uint32_t heads = static_cast<uint32_t>(p.num_heads_kv);
  const uint32_t rows = static_cast<uint32_t>(p.num_tokens) * heads;
  const uint32_t first = blockIdx.x * static_cast<uint32_t>(rows_per_block * kRows) + threadIdx.x / row_lanes;
  Rows r;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const uint32_t row = first + i * rows_per_block;
    const bool exists = row < rows && channel < p.head_dim;
    const uint32_t token = row / heads;
    const uint32_t head = r.head[i] = row - token * heads;
    r.slot[i] = exists ? p.slot_mapping[token] : -1;
    r.position[i] = 0;
    r.key[i] = r.value[i] = uint4{};
    if (!exists) continue;
    r.key[i] =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.key) + token * p.key_stride_token +
                                        head * p.key_stride_head + channel);
    r.value[i] =
        *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(p.value) + token * p.value_stride_token +
                                        head * p.value_stride_head + channel);
    if constexpr (kRotary != Rotary::kNone) r.position[i] = p.positions[token];
  }
  return r;
}

/// Where a slot lies: its block, and the token inside the block.
struct Place {
  uint32_t block, inside;
};

/// Whether row `i` is written. Slot -1 means skip, by contract. Nothing may be accessed through a slot or
/// position outside either.
template <Rotary kRotary>
__device__ __forceinline__ bool writes_row(const KvAppendParams& p, const Rows& r, int i) {
  const uint32_t capacity = static_cast<uint32_t>(p.num_blocks) * static_cast<uint32_t>(p.block_size);
  const bool in_cache = r.slot[i] >= 0 && r.slot[i] < capacity;
  if constexpr (kRotary == Rotary::kNone) return in_cache;
  return in_cache && r.position[i] >= 0 && r.position[i] < p.rotary.positions;
}

__device__ __forceinline__ Place place_of(const KvAppendParams& p, int64_t slot) {
  const uint32_t block = static_cast<uint32_t>(slot) / static_cast<uint32_t>(p.block_size);
  return {block, static_cast<uint32_t>(slot) - block * static_cast<uint32_t>(p.block_size)};
}

/// Appends to caches in the type of the input.
template <DType kType, Rotary kRotary>
__global__ void __launch_bounds__(kThreads)
    append_kernel(const __grid_constant__ KvAppendParams p, int row_lanes) {
  const int channel = static_cast<int>(threadIdx.x) % row_lanes * kChannels;
  Rows r = load_rows<kRotary>(p, row_lanes, channel);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const bool writes = writes_row<kRotary>(p, r, i);
    float x[kChannels];
    if (rotate<kType, kRotary>(p.rotary, r.key[i], writes ? r.position[i] : -1, channel, x)) {
      r.key[i] = pack<kType>(x);
    }
    if (!writes) continue;
    const Place at = place_of(p, r.slot[i]);
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.k_cache) + at.block * p.k_stride_block +
                              at.inside * p.k_stride_token + r.head[i] * p.k_stride_head + channel) =
        r.key[i];
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(p.v_cache) + at.block * p.v_stride_block +
                              at.inside * p.v_stride_token + r.head[i] * p.v_stride_head + channel) =
        r.value[i];
  }
}

}  // namespace attnbench::cuda_append
