// Writes new rows of K and V to caches that are *alike*: both in e4m3 or both in int8.
//
// A lane handles one head of a token: kChunks chunks of kChannels channels, of K and of V each. In NeoX order
// its two chunks are the two halves of the same pairs. So a rotation needs nothing from another lane, and
// each angle is read once. The loop is bound by instructions as much as by memory. So the types and the kinds
// of scales are template parameters, strides have 32 bits, and little is computed anew in each pass.
//
// A block goes from token to token, one *pass* for each. While it works on a token, the following are in
// flight:
//   the rows of the next token, to shared memory by cp.async: a lane reads only what it copied, so no barrier
//   the angles of the next token, to the registers that the rotation has just released
//   the slot and the position of the token after the next
#pragma once

#include "kernels/cuda/append/alike_divisors.cuh"
#include "kernels/cuda/append/alike_feed.cuh"

namespace attnbench::cuda_append::alike {

template <DType kTo>
__device__ __forceinline__ uint32_t to_four(const float* x) {
  if constexpr (kTo == DType::kE4m3) return to_e4m3(x[0], x[1], x[2], x[3]);
  return to_int8(x[0], x[1], x[2], x[3]);
}

template <DType kType, Rotary kRotary, DType kTo, Scales kOfK, Scales kOfV>
__global__ void __launch_bounds__(kThreads, kBlocks<kOfV>) alike_kernel(const __grid_constant__ Params p) {
  static_assert(kOfK == Scales::kComputed || kOfV != Scales::kComputed);
  __shared__ RowFeed::Stage stages[2];
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

  PlaceFeed<kRotary> places{token, end};
  places.ask(p);
  RowFeed feed(stages, p, lane, token, end);
  feed.ask(p, 0);

  Divisors<kOfK> k_by;
  Divisors<kOfV> v_by;
  k_by.load(p.k, lane);
  v_by.load(p.v, lane);

  LaneAngles<kRotary> angles;
  angles.prepare(p.rotary, lane);
  uint32_t slot = places.take(p, lane, angles);
  places.ask(p);
  const bool k_usual = k_by.invert();
  const bool given_usual = v_by.invert() && k_usual;

  const uint32_t warp_end = __shfl_sync(~0u, end, 0);
#pragma unroll 1
  for (uint32_t t = __shfl_sync(~0u, token, 0); t < warp_end; t += p.token_step) {
    float x[kChunks][kChannels];
    uint4 value[kChunks];
    feed.take<kType>(p, x, value);
    angles.rotate(x);
    const uint32_t now = slot;
    slot = places.take(p, lane, angles);
    places.ask(p);

    const bool writes = now != places.kNowhere;
    const uint32_t block = p.by_block_size.divide(now & 0x7fffffffu);
    const uint32_t inside = now - block * p.block_size;
    bool all_usual = given_usual;
    if constexpr (kOfK == Scales::kComputed) {
      const bool usual = compute_scales<kType, kTo>(p, lane, x, value, writes, block, inside, k_by, v_by);
      all_usual = all_usual && usual;
    }
    const auto store = [&](const Side& side, const auto& divisors) {
      divisors.divide(x);
      if (__builtin_expect(!all_usual, 0)) divisors.divide_more(side, lane, x);
      char* to = side.rows + (uint64_t{lane.head} * side.stride_head + lane.channel[0]) +
                 uint64_t{block} * side.stride_block + uint64_t{inside} * side.stride_token;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const uint2 bytes = make_uint2(to_four<kTo>(x[c]), to_four<kTo>(x[c] + 4));
        if (writes && lane.exists[c]) *reinterpret_cast<uint2*>(to + c * feed.apart) = bytes;
      }
    };
    store(p.k, k_by);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) unpack<kType>(value[c], x[c]);
    store(p.v, v_by);
  }
}

}  // namespace attnbench::cuda_append::alike
