// What alike_kernel reads ahead: the rows of the next token, and the slot and position of the one after.
#pragma once

#include "kernels/cuda/append/alike_lane.cuh"
#include "kernels/cuda/common/async_copy.cuh"

namespace attnbench::cuda_append::alike {

/// A lane's rows of K and of V, one token ahead. A lane reads only places that it filled, so there is no
/// barrier.
struct RowFeed {
  using Stage = uint4[2 * kChunks][kThreads];  ///< chunks of K, then of V; one place per thread

  Stage* stages;  ///< [2], in shared memory
  const Lane& lane;
  const char *k_source, *v_source;
  uint32_t token, end, apart;  ///< `token`: the next to request; `apart`: channels between a lane's chunks
  int stage = 0;

  __device__ __forceinline__ RowFeed(Stage* stages, const Params& p, const Lane& lane, uint32_t first,
                                     uint32_t end)
      : stages(stages),
        lane(lane),
        k_source(source_of(p.k, lane, first)),
        v_source(source_of(p.v, lane, first)),
        token(first),
        end(end),
        apart(lane.channel[1] - lane.channel[0]) {
    // Chunks that do not exist are never copied, and must read as zeros.
    if (lane.exists[1]) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (lane.exists[c]) continue;
#pragma unroll
      for (int s = 0; s < 2; ++s) stages[s][c][threadIdx.x] = stages[s][kChunks + c][threadIdx.x] = uint4{};
    }
  }

  __device__ __forceinline__ static const char* source_of(const Side& side, const Lane& lane,
                                                          uint32_t token) {
    return side.source + uint64_t{token} * side.source_stride_token +
           uint64_t{lane.head} * side.source_stride_head + 2 * lane.channel[0];
  }

  /// Requests the next token's rows, to stage `to`.
  __device__ __forceinline__ void ask(const Params& p, int to) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (token < end && lane.exists[c]) {
        copy_async_16(&stages[to][c][threadIdx.x], k_source + c * 2 * apart, true);
        copy_async_16(&stages[to][kChunks + c][threadIdx.x], v_source + c * 2 * apart, true);
      }
    }
    commit_async();
    token += p.token_step;
    k_source += uint64_t{p.token_step} * p.k.source_stride_token;
    v_source += uint64_t{p.token_step} * p.v.source_stride_token;
  }

  /// Waits for the requested rows and requests the next ones. Returns K as numbers and V as it came.
  template <DType kType>
  __device__ __forceinline__ void take(const Params& p, float (&k)[kChunks][kChannels], uint4 (&v)[kChunks]) {
    wait_async<0>();
    ask(p, stage ^ 1);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) unpack<kType>(stages[stage][c][threadIdx.x], k[c]);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) v[c] = stages[stage][kChunks + c][threadIdx.x];
    stage ^= 1;
  }
};

/// Where a token's rows go: its slot, and its position for the rotation.
template <Rotary kRotary>
struct PlaceFeed {
  static constexpr uint32_t kNowhere = ~0u;  ///< the token does not exist, or is skipped

  uint32_t token, end;  ///< `token`: the one to request next
  int64_t slot_read = -1;
  uint32_t position_read = 0;

  __device__ __forceinline__ void ask(const Params& p) {
    slot_read = -1;
    if (token < end) {
      slot_read = __ldg(reinterpret_cast<const long long*>(p.slot_mapping) + token);
      if constexpr (kRotary != Rotary::kNone) position_read = __ldg(p.positions + token);
    }
    token += p.token_step;
  }

  /// Returns the slot of the requested token and loads its angles. Nothing is accessed through a slot or
  /// position outside: the slot is then kNowhere.
  __device__ __forceinline__ uint32_t take(const Params& p, const Lane& lane,
                                           LaneAngles<kRotary>& angles) const {
    const bool inside =
        static_cast<uint64_t>(slot_read) < p.capacity &&
        (kRotary == Rotary::kNone || position_read < static_cast<uint32_t>(p.rotary.positions));
    if constexpr (kRotary != Rotary::kNone) angles.load(p.rotary, lane, inside ? position_read : 0);
    return inside ? static_cast<uint32_t>(slot_read) : kNowhere;
  }
};

}  // namespace attnbench::cuda_append::alike
