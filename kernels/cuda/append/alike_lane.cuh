// The parameters of alike_kernel, and what a lane of it has: a head, channels, and the angles that rotate
// them.
#pragma once

#include "kernels/cuda/append/cut.h"
#include "kernels/cuda/append/kernel.cuh"
#include "kernels/cuda/common/divisor.h"

namespace attnbench::cuda_append::alike {

inline constexpr int kThreads = 128;
inline constexpr int kChunks = 2;  ///< chunks of kChannels channels per lane

/// How rows of a cache are scaled. Given scales have given_stride_channel 0 (kPerHead) or 1 (kPerChannel).
enum class Scales { kComputed, kPerHead, kPerChannel };

/// Blocks per multiprocessor that registers leave room for.
template <Scales kOfV>
inline constexpr int kBlocks = kOfV == Scales::kPerChannel ? 4 : 6;

/// K or V of a launch. Strides in bytes, except those of scales that are given.
struct Side {
  const char* source;
  uint32_t source_stride_token, source_stride_head;
  char* rows;
  uint32_t stride_block, stride_token, stride_head;
  const float* given;
  int64_t given_stride_head;
  char* computed;
};

/// By-value parameter of the kernel. The blocks (x, y) of one x go side by side from token to token, `passes`
/// times by `token_step` tokens (cut.h).
struct Params {
  Side k, v;
  uint32_t scale_stride_block, scale_stride_token, scale_stride_head;  ///< for K and V alike, in bytes
  const int64_t* slot_mapping;
  const int32_t* positions;
  RotaryParams rotary;
  uint32_t tokens, heads, head_dim, block_size, capacity;
  Divisor by_heads, by_block_size;
  uint32_t row_lanes_log2;      ///< log2 of a row's lanes, 1..5: at least ceil(head_dim / 8 / kChunks) lanes
  uint32_t token_step, passes;  ///< from the Cut
};

/// The chunks of a lane.
struct Lane {
  uint32_t channel[kChunks];  ///< first channel of each chunk
  bool exists[kChunks];

  uint32_t head, row_lane;  ///< `row_lane`: which lane of the row

  template <Rotary kRotary>
  __device__ __forceinline__ void place(uint32_t head_dim, uint32_t rotary_dim) {
    const uint32_t chunks = head_dim / kChannels;
    uint32_t pairs = 0;
    if constexpr (kRotary == Rotary::kHalves) pairs = rotary_dim / (2 * kChannels);
    // Where chunks are not halves of pairs, a lane has one from the first half of them and the matching one
    // from the second.
    const bool turns = row_lane < pairs;
    const uint32_t apart = turns ? pairs : (chunks - 2 * pairs + 1) / 2;
    const uint32_t first = turns ? row_lane : pairs + row_lane;
    channel[0] = first * kChannels;
    channel[1] = (first + apart) * kChannels;
    exists[0] = turns || row_lane - pairs < apart;
    exists[1] = exists[0] && first + apart < chunks;
  }
};

/// Cosines and sines of a lane's channels at one position.
template <Rotary kRotary>
struct LaneAngles {
  float cos[kChannels], sin[kChannels];
  bool turns[kChunks];
  const char *cos_table, *sin_table;  ///< tables from the lane's first channel on, at position 0

  __device__ __forceinline__ void prepare(const RotaryParams& r, const Lane& lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      turns[c] = kRotary != Rotary::kNone && r.positions > 0 && lane.exists[c] &&
                 lane.channel[c] < static_cast<uint32_t>(r.dim);
    }
    const uint32_t column = kRotary == Rotary::kAdjacent ? lane.channel[0] / 2 : lane.channel[0];
    cos_table = reinterpret_cast<const char*>(r.cos + column);
    sin_table = reinterpret_cast<const char*>(r.sin + column);
  }

  __device__ __forceinline__ void load(const RotaryParams& r, const Lane& lane, uint32_t position) {
    const uint64_t row = uint64_t{position} * static_cast<uint32_t>(r.dim / 2 * sizeof(float));
    const auto* c = reinterpret_cast<const float4*>(cos_table + row);
    const auto* s = reinterpret_cast<const float4*>(sin_table + row);
    // The first four cosines and sines. Then the other four of the same pairs, or for kAdjacent those of the
    // other chunk.
    const uint32_t more = kRotary == Rotary::kAdjacent ? (lane.channel[1] - lane.channel[0]) / 8 : 1;
    if (turns[0]) {
      *reinterpret_cast<float4*>(cos) = __ldg(c);
      *reinterpret_cast<float4*>(sin) = __ldg(s);
    }
    if (turns[1]) {
      *reinterpret_cast<float4*>(cos + 4) = __ldg(c + more);
      *reinterpret_cast<float4*>(sin + 4) = __ldg(s + more);
    }
  }

  __device__ __forceinline__ void rotate(float (&x)[kChunks][kChannels]) const {
    if constexpr (kRotary == Rotary::kHalves) {
      if (!turns[0]) return;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        const float2 to = turn(x[0][i], x[1][i], cos[i], sin[i]);
        x[0][i] = to.x;
        x[1][i] = to.y;
      }
    }
    if constexpr (kRotary == Rotary::kAdjacent) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (!turns[c]) continue;
#pragma unroll
        for (int i = 0; i < kChannels; i += 2) {
          const float2 to = turn(x[c][i], x[c][i + 1], cos[4 * c + i / 2], sin[4 * c + i / 2]);
          x[c][i] = to.x;
          x[c][i + 1] = to.y;
        }
      }
    }
  }
};

}  // namespace attnbench::cuda_append::alike
