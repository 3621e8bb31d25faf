// New rows of K and V to caches that are alike: both in e4m3 or both in int8.
//
// A lane does one head of a token, kChunks chunks of kChannels channels of K and of V. In NeoX order the
// chunks are the two halves of the same pairs, so that a rotation needs nothing of another lane and each
// angle is read once. The loop is bound by instructions as much as by memory: the types and how rows are
// scaled are known when it is compiled, strides have 32 bits, and what differs from pass to pass is little.
//
// A block goes from token to token. While one is worked on, its lanes' rows of the next come to shared memory
// (cp.async, each lane's to its own place: no barrier at all), the angles of the next to the registers that
// the rotation has just left, and the slot and the position of the one after.
#pragma once

#include "kernels/cuda/append/cut.h"
#include "kernels/cuda/append/quantise.cuh"

namespace attnbench::cuda_append::alike {

inline constexpr int kThreads = 128;
inline constexpr int kChunks = 2;  ///< per lane

/// How rows of a cache are scaled: given_stride_channel 0 or 1 where the scales are given.
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

/// Blocks (x, y) for y = 0, 1, .. go side by side from token to token, `token_step` at a time, `passes`
/// times.
struct Params {
  Side k, v;
  uint32_t scale_stride_block, scale_stride_token, scale_stride_head;  ///< of both, in bytes
  const int64_t* slot_mapping;
  const int32_t* positions;
  RotaryParams rotary;
  uint32_t tokens, heads, head_dim, block_size, capacity;
  Divider by_heads, by_block_size;
  uint32_t row_lanes_log2;      ///< 1..5, room for ceil(head_dim / 8 / kChunks) lanes
  uint32_t token_step, passes;  ///< of the Cut
};

/// The chunks of a lane.
struct Lane {
  uint32_t channel[kChunks];  ///< the first of each
  bool exists[kChunks];

  uint32_t head, row_lane;  ///< which lane of the row

  template <Rotary kRotary>
  __device__ __forceinline__ void place(uint32_t head_dim, uint32_t rotary_dim) {
    const uint32_t chunks = head_dim / kChannels;
    uint32_t pairs = 0;
    if constexpr (kRotary == Rotary::kHalves) pairs = rotary_dim / (2 * kChannels);
    // Chunks that no pairs join are as far apart as their lanes allow.
    const bool turns = row_lane < pairs;
    const uint32_t apart = turns ? pairs : (chunks - 2 * pairs + 1) / 2;
    const uint32_t first = turns ? row_lane : pairs + row_lane;
    channel[0] = first * kChannels;
    channel[1] = (first + apart) * kChannels;
    exists[0] = turns || row_lane - pairs < apart;
    exists[1] = exists[0] && first + apart < chunks;
  }
};

/// The larger magnitude of each of two pairs, of either sign; a NaN gives way.
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
  const float2 pair = unpack_pair<kType>(larger_pair<kType>(of[0], of[1]));
  return fmaxf(fmaxf(0.0f, fabsf(pair.x)), fabsf(pair.y));
#endif
}

/// 1 / x of an x between 2^-120 and 2^120, "usual": its range_factor is 1.
__device__ __forceinline__ float usual_reciprocal(float x) {
  const float r = hopper::reciprocal_approx(x);
  return fmaf(fmaf(-x, r, 1.0f), r, r);
}

/// What a lane's rows of K or of V are divided by.
template <Scales kScales>
struct Divisors {
  static constexpr bool kEach = kScales == Scales::kPerChannel;  ///< one per channel, else one
  float by[kEach ? kChunks : 1][kEach ? kChannels : 1];          ///< scales, then their reciprocals
  float factor = 1.0f;                                           ///< range_factor of the one

  /// Asks for scales that are given.
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

  /// Of scales that are given: inverts them. False where products need a range_factor beside.
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

  /// The rest of a division where not all scales are usual.
  __device__ __forceinline__ void divide_more(const Side& side, const Lane& lane,
                                              float (&x)[kChunks][kChannels]) const {
    if constexpr (!kEach) {
#pragma unroll
      for (int i = 0; i < kChunks * kChannels; ++i) x[i / kChannels][i % kChannels] *= factor;
      return;
    }
    // Rare, so few instructions rather than fast.
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

/// Cosines and sines of a lane's channels at one position.
template <Rotary kRotary>
struct LaneAngles {
  float cos[kChannels], sin[kChannels];
  bool turns[kChunks];
  const char *cos_table, *sin_table;  ///< of the lane's first channel, position 0

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
    // The first four of each; then the other four of the same pairs, or those of the other chunk.
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

template <DType kTo>
__device__ __forceinline__ uint32_t to_four(const float* x) {
  if constexpr (kTo == DType::kE4m3) return to_e4m3(x[0], x[1], x[2], x[3]);
  return to_int8(x[0], x[1], x[2], x[3]);
}

template <DType kType, Rotary kRotary, DType kTo, Scales kOfK, Scales kOfV>
__global__ void __launch_bounds__(kThreads, kBlocks<kOfV>) alike_kernel(const __grid_constant__ Params p) {
  constexpr bool kComputesBoth = kOfK == Scales::kComputed && kOfV == Scales::kComputed;
  static_assert(kOfK == Scales::kComputed || kOfV != Scales::kComputed);
  __shared__ uint4 rows[2][2 * kChunks][kThreads];
  const uint32_t row_lanes = 1u << p.row_lanes_log2;
  const uint32_t rows_per_block = kThreads >> p.row_lanes_log2;
  const uint32_t row = first_row(blockIdx.x, blockIdx.y, gridDim.y, p.passes, rows_per_block) +
                       (threadIdx.x >> p.row_lanes_log2);
  const uint32_t token = p.by_heads.quotient(row);
  const uint32_t end = min(p.tokens, token + p.passes * p.token_step);
  Lane lane;
  lane.head = row - token * p.heads;
  lane.row_lane = threadIdx.x & (row_lanes - 1);
  lane.place<kRotary>(p.head_dim, static_cast<uint32_t>(p.rotary.dim));
  const uint32_t apart = lane.channel[1] - lane.channel[0];

  // Slot and position of the token that is asked for next.
  uint32_t place_token = token;
  int64_t slot_read = -1;
  uint32_t position_read = 0;
  const auto ask_place = [&] {
    slot_read = -1;
    if (place_token < end) {
      slot_read = __ldg(reinterpret_cast<const long long*>(p.slot_mapping) + place_token);
      if constexpr (kRotary != Rotary::kNone) position_read = __ldg(p.positions + place_token);
    }
    place_token += p.token_step;
  };
  ask_place();

  uint32_t row_token = token;
  const auto source_of = [&](const Side& side) {
    return side.source + uint64_t{token} * side.source_stride_token +
           uint64_t{lane.head} * side.source_stride_head + 2 * lane.channel[0];
  };
  const char* k_source = source_of(p.k);
  const char* v_source = source_of(p.v);
  const auto ask_rows = [&](int stage) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (row_token < end && lane.exists[c]) {
        copy_async_16(&rows[stage][c][threadIdx.x], k_source + c * 2 * apart, true);
        copy_async_16(&rows[stage][kChunks + c][threadIdx.x], v_source + c * 2 * apart, true);
      }
    }
    commit_async();
    row_token += p.token_step;
    k_source += uint64_t{p.token_step} * p.k.source_stride_token;
    v_source += uint64_t{p.token_step} * p.v.source_stride_token;
  };
  if (!lane.exists[1]) {  // what is not asked for counts as zeros
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (lane.exists[c]) continue;
#pragma unroll
      for (int stage = 0; stage < 2; ++stage) {
        rows[stage][c][threadIdx.x] = rows[stage][kChunks + c][threadIdx.x] = uint4{};
      }
    }
  }
  ask_rows(0);

  Divisors<kOfK> k_by;
  Divisors<kOfV> v_by;
  k_by.load(p.k, lane);
  v_by.load(p.v, lane);

  LaneAngles<kRotary> angles;
  angles.prepare(p.rotary, lane);
  uint32_t slot;  // kNowhere: does not exist, or is skipped
  constexpr uint32_t kNowhere = ~0u;
  // Nothing may be touched through a slot or a position outside.
  const auto take_place = [&] {
    const bool inside =
        static_cast<uint64_t>(slot_read) < p.capacity &&
        (kRotary == Rotary::kNone || position_read < static_cast<uint32_t>(p.rotary.positions));
    slot = inside ? static_cast<uint32_t>(slot_read) : kNowhere;
    if constexpr (kRotary != Rotary::kNone) angles.load(p.rotary, lane, inside ? position_read : 0);
  };
  take_place();
  ask_place();
  const bool k_usual = k_by.invert();
  const bool given_usual = v_by.invert() && k_usual;

  int stage = 0;
  const uint32_t warp_end = __shfl_sync(~0u, end, 0);
#pragma unroll 1
  for (uint32_t t = __shfl_sync(~0u, token, 0); t < warp_end; t += p.token_step) {
    wait_async<0>();
    ask_rows(stage ^ 1);
    float x[kChunks][kChannels];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) unpack<kType>(rows[stage][c][threadIdx.x], x[c]);
    const uint4 value[kChunks] = {rows[stage][kChunks][threadIdx.x], rows[stage][kChunks + 1][threadIdx.x]};
    stage ^= 1;
    angles.rotate(x);
    const uint32_t now = slot;
    take_place();
    ask_place();

    const bool writes = now != kNowhere;
    const uint32_t block = p.by_block_size.quotient(now & 0x7fffffffu);
    const uint32_t inside = now - block * p.block_size;
    bool all_usual = given_usual;
    if constexpr (kOfK == Scales::kComputed) {
      // Where both are computed, even lanes go on with K and odd ones with V.
      const bool odd = kComputesBoth && lane.row_lane % 2 == 1;
      float amax = fmaxf(largest_of(x[0]), largest_of(x[1]));
      if constexpr (kComputesBoth) {
        const float v_max = largest_packed<kType>(value);
        const float theirs = __shfl_xor_sync(~0u, odd ? amax : v_max, 1);
        amax = fmaxf(odd ? v_max : amax, theirs);
      }
      for (uint32_t distance = row_lanes / 2; distance > (kComputesBoth ? 1 : 0); distance /= 2) {
        amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, distance));
      }
      float scale, by, factor = 1.0f;
      const bool scale_usual = __all_sync(~0u, has_usual_scale(amax));
      if (__builtin_expect(scale_usual, 1)) {
        scale = usual_token_scale(kTo, amax);
        by = usual_reciprocal(scale);
      } else {
        scale = token_scale(kTo, amax);
        factor = range_factor(scale);
        by = reciprocal(scale * factor);
      }
      all_usual = all_usual && scale_usual;
      k_by.by[0][0] = by;
      k_by.factor = factor;
      if constexpr (kComputesBoth) {
        const float other_by = __shfl_xor_sync(~0u, by, 1);
        const float other_factor = scale_usual ? 1.0f : __shfl_xor_sync(~0u, factor, 1);
        k_by.by[0][0] = odd ? other_by : by;
        v_by.by[0][0] = odd ? by : other_by;
        k_by.factor = odd ? other_factor : factor;
        v_by.factor = odd ? factor : other_factor;
      }
      if (writes && lane.row_lane < (kComputesBoth ? 2 : 1)) {
        char* to = odd ? p.v.computed : p.k.computed;
        *reinterpret_cast<float*>(to + uint64_t{lane.head} * p.scale_stride_head +
                                  uint64_t{block} * p.scale_stride_block +
                                  uint64_t{inside} * p.scale_stride_token) = scale;
      }
    }
    const auto store = [&](const Side& side, const auto& divisors) {
      divisors.divide(x);
      if (__builtin_expect(!all_usual, 0)) divisors.divide_more(side, lane, x);
      char* to = side.rows + (uint64_t{lane.head} * side.stride_head + lane.channel[0]) +
                 uint64_t{block} * side.stride_block + uint64_t{inside} * side.stride_token;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const uint2 bytes = make_uint2(to_four<kTo>(x[c]), to_four<kTo>(x[c] + 4));
        if (writes && lane.exists[c]) *reinterpret_cast<uint2*>(to + c * apart) = bytes;
      }
    };
    store(p.k, k_by);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) unpack<kType>(value[c], x[c]);
    store(p.v, v_by);
  }
}

}  // namespace attnbench::cuda_append::alike
