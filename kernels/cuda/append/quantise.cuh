// Writes new rows of K and V to caches in e4m3 or int8: rotated in fp32, divided by a given or computed
// scale, and rounded once.
//
// A *unit* of work is two heads of a token; a lane has 8 channels of each. Blocks stay for the whole launch
// and go from token to token. A lane keeps its heads and channels, so it reads and inverts given scales once.
// Meanwhile the rows of the next token are copied to shared memory (cp.async, no registers), each to a place
// of the lane that requested it. The slot and position of the next token arrive before its rows. So of the
// chain position, rotary table only the table, which is in L2, is waited for.
#pragma once

#include <type_traits>

#include "kernels/cuda/append/kernel.cuh"
#include "kernels/cuda/append/scales.cuh"
#include "kernels/cuda/common/async_copy.cuh"

namespace attnbench::cuda_append {

inline constexpr int kHeads = 2;  ///< heads of a token per lane, of K and of V each

/// Blocks per multiprocessor that registers allow.
template <bool kPerChannel>
inline constexpr int kBlocks = kPerChannel ? 2 : 3;

/// One of the two caches of a launch, and where its new rows come from.
struct Cache {
  const void* source;
  int64_t source_stride_token, source_stride_head;
  void* rows;
  DType dtype;
  int64_t stride_block, stride_token, stride_head;
  bool computed;  ///< scales are computed per (token, head), not given
  ScaleParams scale;
};

/// The reciprocals of a lane's given scales for its heads: one per head, or one per channel.
template <bool kPerChannel>
struct Reciprocals {
  static constexpr int kCount = kPerChannel ? kChannels : 1;
  float of[kHeads][kCount];
  bool plain;  ///< no scale needs a range_factor

  __device__ __forceinline__ static const float* scale(const Cache& cache, uint32_t head, int channel,
                                                       int i) {
    return cache.scale.given + head * cache.scale.given_stride_head +
           (channel + i) * cache.scale.given_stride_channel;
  }

  __device__ __forceinline__ void load(const Cache& cache, uint32_t first_head, uint32_t head_step,
                                       int channel, uint32_t heads, int head_dim) {
    plain = true;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const uint32_t head = first_head + h * head_step;
      const bool exists = head < heads && channel < head_dim && cache.scale.given != nullptr;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float s = exists ? __ldg(scale(cache, head, channel, i)) : 1.0f;
        const float factor = range_factor(s);
        plain = plain && factor == 1.0f;
        of[h][i] = reciprocal(s * factor);
      }
    }
  }

  /// Divides x by the scales of the lane's head `h`.
  __device__ __forceinline__ void apply(const Cache& cache, int h, uint32_t head, int channel,
                                        float (&x)[kChannels]) const {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) x[i] *= of[h][kPerChannel ? i : 0];
    if (__builtin_expect(plain, 1)) return;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {  // volatile: read again, not kept in registers for all the launch
      const volatile float* again = scale(cache, head, channel, kPerChannel ? i : 0);
      x[i] *= range_factor(*again);
    }
  }
};

/// What a lane knows of a token besides its rows.
struct Token {
  int64_t slot;  ///< negative: the token does not exist, or is skipped
  int32_t position;
};

template <Rotary kRotary>
__device__ __forceinline__ Token load_token(const KvAppendParams& p, uint32_t token) {
  Token t{-1, 0};
  if (token < p.num_tokens) {
    t.slot = __ldg(reinterpret_cast<const long long*>(p.slot_mapping) + token);
    if constexpr (kRotary != Rotary::kNone) t.position = __ldg(p.positions + token);
  }
  return t;
}

/// Cosines and sines of a lane's channels.
template <Rotary kRotary>
struct Angles {
  static constexpr int kCount = kRotary == Rotary::kHalves ? 8 : kRotary == Rotary::kAdjacent ? 4 : 1;
  float cos[kCount], sin[kCount];

  /// `upper`: in NeoX order the channels are the second ones of their pairs. The angles are the same; the
  /// caller negates the sine.
  __device__ __forceinline__ void load(const RotaryParams& r, int32_t position, int channel, bool upper) {
    const int half = r.dim / 2;
    const int first = kRotary == Rotary::kAdjacent ? channel / 2 : upper ? channel - half : channel;
    const int64_t column = int64_t{position} * half + first;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      *reinterpret_cast<float4*>(cos + i) = __ldg(reinterpret_cast<const float4*>(r.cos + column + i));
      *reinterpret_cast<float4*>(sin + i) = __ldg(reinterpret_cast<const float4*>(r.sin + column + i));
    }
  }
};

/// Stores eight numbers, already divided by their scales, to element `target` of the cache, rounded to its
/// type.
__device__ __forceinline__ void store_quantised(const Cache& cache, int64_t target,
                                                const float (&x)[kChannels]) {
  const uint2 bytes = cache.dtype == DType::kE4m3
                          ? make_uint2(to_e4m3(x[0], x[1], x[2], x[3]), to_e4m3(x[4], x[5], x[6], x[7]))
                          : make_uint2(to_int8(x[0], x[1], x[2], x[3]), to_int8(x[4], x[5], x[6], x[7]));
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(cache.rows) + target) = bytes;
}

/// Like append_kernel, with at least one cache in e4m3 or int8. `row_lanes`: a power of two, at least
/// head_dim / 8 and at most 32. The kHeads heads of a unit are half of all heads apart. If a block does more
/// than one pass, a pass of the grid is a whole number of tokens, so that lanes keep their heads.
template <DType kType, Rotary kRotary, bool kPerChannel>
__global__ void __launch_bounds__(kThreads, kBlocks<kPerChannel>)
    quantise_kernel(const __grid_constant__ KvAppendParams p, const __grid_constant__ Cache k,
                    const __grid_constant__ Cache v, int row_lanes) {
  __shared__ uint4 rows[2][2 * kHeads][kThreads];
  const uint32_t heads = static_cast<uint32_t>(p.num_heads_kv);
  const uint32_t groups = (heads + kHeads - 1) / kHeads;
  const uint32_t units = static_cast<uint32_t>(p.num_tokens) * groups;
  const uint32_t per_block = kThreads / row_lanes;
  const uint32_t per_pass = per_block * gridDim.x;
  const uint32_t passes = (units - blockIdx.x * per_block + per_pass - 1) / per_pass;
  const uint32_t unit = blockIdx.x * per_block + threadIdx.x / row_lanes;
  uint32_t token = unit / groups;
  const uint32_t token_step = per_pass / groups;
  const uint32_t head = unit - token * groups;
  const int channel = static_cast<int>(threadIdx.x) % row_lanes * kChannels;
  const bool second = head + groups < heads;

  const auto ask = [&](int stage) {
    const bool exists = token < p.num_tokens && channel < p.head_dim;
    const auto ask_cache = [&](const Cache& cache, int place) {
      const uint16_t* source = static_cast<const uint16_t*>(cache.source);
      if (exists) source += token * cache.source_stride_token + head * cache.source_stride_head + channel;
      copy_async_16(&rows[stage][place][threadIdx.x], source, exists);
      if (exists && second) source += groups * cache.source_stride_head;
      copy_async_16(&rows[stage][place + 1][threadIdx.x], source, exists && second);
    };
    ask_cache(k, 0);
    ask_cache(v, kHeads);
    commit_async();
  };
  ask(0);
  Token next = load_token<kRotary>(p, token);
  Reciprocals<kPerChannel> k_given, v_given;
  k_given.load(k, head, groups, channel, heads, p.head_dim);
  v_given.load(v, head, groups, channel, heads, p.head_dim);
  const uint32_t capacity = static_cast<uint32_t>(p.num_blocks) * static_cast<uint32_t>(p.block_size);
  const bool turns = kRotary != Rotary::kNone && channel < p.rotary.dim && p.rotary.positions > 0;
  const int half = p.rotary.dim / 2;
  const bool upper = channel >= half;  // the channels are the second ones of their pairs, in NeoX order
  const int other = static_cast<int>(threadIdx.x) + (upper ? -half : half) / kChannels;

  int stage = 0;
#pragma unroll 1
  for (uint32_t pass = 0; pass < passes; ++pass) {
    const Token now = next;
    // Nothing may be accessed through a slot or position outside.
    const bool writes =
        channel < p.head_dim && now.slot >= 0 && now.slot < capacity &&
        (kRotary == Rotary::kNone || (now.position >= 0 && now.position < p.rotary.positions));
    Angles<kRotary> angles;
    if (turns) angles.load(p.rotary, writes ? now.position : 0, channel, upper);
    token += token_step;
    if (pass + 1 < passes) next = load_token<kRotary>(p, token);

    wait_async<0>();
    __syncwarp();  // the other lanes' copies have landed too, and all lanes have read the previous stage
    if (pass + 1 < passes) ask(stage ^ 1);

    const Place at = writes ? place_of(p, now.slot) : Place{};
    const auto append = [&](const Cache& cache, const Reciprocals<kPerChannel>& given, auto which) {
      constexpr bool kKeys = decltype(which)::value;
      constexpr int kFirst = kKeys ? 0 : kHeads;
      // Both heads are handled together, so that their latencies overlap.
      float x[kHeads][kChannels];
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        unpack<kType>(rows[stage][kFirst + h][threadIdx.x], x[h]);
        if constexpr (kKeys && kRotary == Rotary::kHalves) {
          if (turns) {
            float theirs[kChannels];
            unpack<kType>(rows[stage][h][other], theirs);
#pragma unroll
            for (int i = 0; i < kChannels; ++i) {
              x[h][i] = turn(x[h][i], theirs[i], angles.cos[i], upper ? -angles.sin[i] : angles.sin[i]).x;
            }
          }
        }
        if constexpr (kKeys && kRotary == Rotary::kAdjacent) {
          if (turns) {
#pragma unroll
            for (int i = 0; i < kChannels / 2; ++i) {
              const float2 to = turn(x[h][2 * i], x[h][2 * i + 1], angles.cos[i], angles.sin[i]);
              x[h][2 * i] = to.x;
              x[h][2 * i + 1] = to.y;
            }
          }
        }
      }
      float scale[kHeads];
      if (cache.computed) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) scale[h] = largest_of(x[h]);
        for (int distance = row_lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
          for (int h = 0; h < kHeads; ++h) {
            scale[h] = fmaxf(scale[h], __shfl_xor_sync(~0u, scale[h], distance));
          }
        }
#pragma unroll
        for (int h = 0; h < kHeads; ++h) scale[h] = fast_token_scale(cache.dtype, scale[h]);
      }
      if (!writes) return;
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        if (h > 0 && !second) break;
        const uint32_t row_head = head + h * groups;
        const int64_t target = at.block * cache.stride_block + at.inside * cache.stride_token +
                               row_head * cache.stride_head + channel;
        if (cache.dtype == kType) {
          *reinterpret_cast<uint4*>(static_cast<uint16_t*>(cache.rows) + target) =
              kKeys && turns ? pack<kType>(x[h]) : rows[stage][kFirst + h][threadIdx.x];
          continue;
        }
        if (cache.computed) {
          if (channel == 0) {
            cache.scale.computed[at.block * cache.scale.stride_block + at.inside * cache.scale.stride_token +
                                 row_head * cache.scale.stride_head] = scale[h];
          }
          divide_by(x[h], scale[h]);
        } else {
          given.apply(cache, h, row_head, channel, x[h]);
        }
        store_quantised(cache, target, x[h]);
      }
    };
    append(k, k_given, std::true_type{});
    append(v, v_given, std::false_type{});
    stage ^= 1;
  }
}

}  // namespace attnbench::cuda_append
