// The start of a block: every block adds up the lengths of the batch and finds its part of the work by
// itself, which costs less than a kernel of its own before this one would.
#pragma once

#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// Lengths and key origin of sequence b, 0 <= b < batch.
__device__ __forceinline__ Sequence load_sequence(const AttentionParams& p, int32_t b) {
  const SeqRange range = seq_range(p, b);
  Sequence s{range.q_begin, range.q_len, range.k_len, 0, 0};
  if (p.features & kPackedKv) {
    s.kv_row = p.cu_seqlens_k[b];
  } else if (p.features & kContiguousKv) {
    s.kv_block = p.cache_batch_idx != nullptr ? p.cache_batch_idx[b] : b;
    s.kv_row = p.cache_leftpad != nullptr ? p.cache_leftpad[b] : 0;
  }
  return s;
}

/// Sequence b, or one without queries past the end of the batch.
__device__ __forceinline__ Sequence load_sequence_if_any(const AttentionParams& p, int32_t b) {
  return b < p.batch ? load_sequence(p, b) : Sequence{};
}

/// `s` as lane `lane` has it.
__device__ __forceinline__ Sequence from_lane(const Sequence& s, int lane) {
  return {__shfl_sync(~0u, s.q_begin, lane), __shfl_sync(~0u, s.q_len, lane), __shfl_sync(~0u, s.k_len, lane),
          __shfl_sync(~0u, s.kv_block, lane), __shfl_sync(~0u, s.kv_row, lane)};
}

/// Tiles that some row of the sequence sees.
__device__ __forceinline__ TileRange tiles_of(const AttentionParams& p, const Sequence& s) {
  if (s.q_len <= 0 || s.k_len <= 0) return {0, 0};
  const KeyBounds keys = visible_keys_of_rows(p, 0, s.q_len - 1, s.q_len, s.k_len);
  return tiles_of_keys(keys.begin, keys.end);
}

__device__ __forceinline__ int32_t units_of(const KernelParams& p, const Sequence& s) {
  const TileRange tiles = tiles_of(p.attention, s);
  return sequence_units(s.q_len, tiles.end - tiles.begin, p.segment_cost);
}

/// Sum over the lanes up to this one.
__device__ __forceinline__ int32_t sum_up_to_lane(int32_t x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(~0u, x, step);
    if (lane >= step) x += other;
  }
  return x;
}

/// Sequences that the producer warp can hold by itself, one per lane.
inline constexpr int32_t kWarpBatch = 32;

/// Of a batch of at most kWarpBatch: the partition, and where part `part` begins; false where the part is
/// empty. One warp; `mine` is sequence `lane`.
__device__ __forceinline__ bool find_start_in_warp(const KernelParams& p, int32_t part, const Sequence& mine,
                                                   int lane, Partition* partition, Start* start) {
  const int32_t units = units_of(p, mine);
  const int32_t up_to = sum_up_to_lane(units, lane);
  const int32_t total = __shfl_sync(~0u, up_to, 31);
  *partition = make_partition(total, p.parts, p.by_parts, p.min_units, p.segment_cost);
  const int32_t begin = part * partition->units_per_part;
  if (begin >= total) return false;
  const uint32_t holders = __ballot_sync(~0u, up_to - units <= begin && begin < up_to);
  const int holder = __ffs(static_cast<int>(holders)) - 1;  // exactly one
  *start = {holder, __shfl_sync(~0u, up_to - units, holder), from_lane(mine, holder)};
  return true;
}

/// Of any batch: the same, by all threads of the block, through smem.start. Thread t adds up the t-th run of
/// neighbouring sequences. Passes two barriers of the block.
template <Shape kShape>
__device__ __forceinline__ bool find_start_in_block(const KernelParams& p, int32_t part,
                                                    SharedMemory<kShape>& smem, Partition* partition) {
  constexpr int kThreads = Derived<kShape>::kThreads;
  constexpr int kBatch = 4;  // loads in flight
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int32_t batch = p.attention.batch;
  const int32_t run = (batch + kThreads - 1) / kThreads;
  const int32_t first = min(static_cast<int32_t>(threadIdx.x) * run, batch);
  const int32_t last = min(first + run, batch);

  int32_t units = 0;
  for (int32_t b = first; b < last; b += kBatch) {
    Sequence s[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) s[i] = b + i < last ? load_sequence(p.attention, b + i) : Sequence{};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) units += units_of(p, s[i]);
  }

  const int32_t up_to = sum_up_to_lane(units, lane);
  if (lane == 31) smem.warp_units[warp] = up_to;
  __syncthreads();
  int32_t total = 0, before = up_to - units;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    const int32_t warp_units = smem.warp_units[w];
    if (w < warp) before += warp_units;
    total += warp_units;
  }
  *partition = make_partition(total, p.parts, p.by_parts, p.min_units, p.segment_cost);
  const int32_t begin = part * partition->units_per_part;

  // Exactly one thread's run holds unit `begin`, if begin < total.
  if (before <= begin && begin < before + units) {
    for (int32_t b = first; b < last; ++b) {  // from the first-level cache
      const Sequence s = load_sequence(p.attention, b);
      const int32_t here = units_of(p, s);
      if (begin < before + here) {
        smem.start = {b, before, s};
        break;
      }
      before += here;
    }
  }
  __syncthreads();
  return begin < total;
}

}  // namespace attnbench::sm90_decode
