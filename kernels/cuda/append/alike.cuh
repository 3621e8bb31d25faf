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

#include "kernels/cuda/append/alike_divisors.cuh"
#include "kernels/cuda/append/alike_lane.cuh"
#include "kernels/cuda/common/async_copy.cuh"

namespace attnbench::cuda_append::alike {

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
  const uint32_t token = p.by_heads.divide(row);
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
    const uint32_t block = p.by_block_size.divide(now & 0x7fffffffu);
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
