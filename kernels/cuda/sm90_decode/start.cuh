// How a block finds its part of the work: every block adds up the lengths of the batch by itself. That costs
// less than a preparation kernel.
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// What memory holds about a sequence. Nothing is computed from it where it is loaded, so that the loads that
/// follow need not wait for it.
struct Entry {
  int32_t q_begin, q_end;
  int32_t k_begin, k_end;  ///< k_len is their difference
  int32_t kv_block, kv_row;
};

/// Loads the entry of sequence b, 0 <= b < batch.
__device__ __forceinline__ Entry load_entry(const KernelParams& p, int32_t b) {
  const uint32_t i = b;  // unsigned: needs no register for a sign
  const int32_t* q = p.cu_seqlens_q + i;
  Entry e{q[0], q[1], 0, p.k_end[i], p.block_step * b, 0};
  if (p.k_begin != nullptr) e.k_begin = p.k_begin[i];
  if (p.kv_row != nullptr) e.kv_row = p.kv_row[i];
  if (p.kv_block != nullptr) e.kv_block = p.kv_block[i];
  return e;
}

/// Loads the entry of sequence b, or that of a sequence without queries past the end of the batch.
__device__ __forceinline__ Entry load_entry_if_any(const KernelParams& p, int32_t b) {
  return b < p.batch ? load_entry(p, b) : Entry{};
}

/// Loads the entry of sequence b < end, without the keys that all sequences share if the instance leaves them
/// to another kernel; or that of a sequence without queries.
template <Shape kShape>
__device__ __forceinline__ Entry load_own_entry(const KernelParams& p, const SharedMemory<kShape>& smem,
                                                int32_t b, int32_t end) {
  Entry e = b < end ? load_entry(p, b) : Entry{};
  if constexpr (kShape.suffixes) e.k_begin = smem.shared_keys;  // such KV is paged: k_begin was 0
  return e;
}

/// The sequence of an entry. A sequence with more queries than the launch's longest belongs to another kernel
/// (sm90_mixed) and counts as one without queries. So does one that a replay made longer than the workspace
/// allows.
__device__ __forceinline__ Sequence sequence_of(const KernelParams& p, const Entry& e) {
  const int32_t q_len = e.q_end - e.q_begin, k_len = e.k_end - e.k_begin;
  const bool ours = q_len <= p.max_seqlen_q && k_len <= p.most_keys;
  return {e.q_begin, ours ? q_len : 0, k_len, e.kv_block, e.kv_row};
}

/// The sequence whose entry lane `lane` has.
__device__ __forceinline__ Sequence from_lane(const KernelParams& p, const Entry& e, int lane) {
  return sequence_of(p, {__shfl_sync(~0u, e.q_begin, lane), __shfl_sync(~0u, e.q_end, lane),
                         __shfl_sync(~0u, e.k_begin, lane), __shfl_sync(~0u, e.k_end, lane),
                         __shfl_sync(~0u, e.kv_block, lane), __shfl_sync(~0u, e.kv_row, lane)});
}

/// Tiles that some row of the sequence sees.
template <Shape kShape>
__device__ __forceinline__ TileRange tiles_of(const KernelParams& p, const Sequence& s) {
  const KeyBounds keys = visible_keys_of_sequence(p.window_left, s.q_len, s.k_len);
  return tiles_of_keys(keys.begin, keys.end, kShape.tile_tokens);
}

template <Shape kShape>
__device__ __forceinline__ int32_t units_of(const KernelParams& p, const Sequence& s) {
  const TileRange tiles = tiles_of<kShape>(p, s);
  return sequence_units(s.q_len, units_of_tiles(tiles.end - tiles.begin, p.unit_shift), p.segment_cost);
}

/// Sum over the lanes up to this one, which is included.
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

/// Loads lane `lane`'s entry of a batch of at most kWarpBatch, for find_start_in_warp: that of sequence
/// `lane`. In a batch of one sequence all lanes load its entry.
__device__ __forceinline__ Entry load_entry_of_lane(const KernelParams& p, int lane) {
  return load_entry_if_any(p, p.batch == 1 ? 0 : lane);
}

/// Where a part begins if the host's guess of the lengths is right: `tile` counts from the sequence's key 0
/// on.
struct Guess {
  int32_t b;
  int32_t first_unit;
  int32_t tile;
};

__device__ __forceinline__ Guess guess_start(const KernelParams& p, int32_t part) {
  const int32_t unit = part * p.guessed_partition.units_per_part;
  const int32_t b = p.by_guessed_sequence_units.divide(unit);
  const int32_t first_unit = b * p.guessed_sequence_units;
  return {b, first_unit, p.guessed_first_tile + (max(unit - first_unit - p.segment_cost, 0) << p.unit_shift)};
}

/// Whether the host's guess of the lengths is right, for a batch of at most kWarpBatch. One warp calls it;
/// `mine` is what load_entry_of_lane loaded.
__device__ __forceinline__ bool is_as_guessed(const KernelParams& p, const Entry& mine, int lane) {
  const bool right =
      mine.q_end - mine.q_begin == p.max_seqlen_q && mine.k_end - mine.k_begin == p.max_seqlen_k;
  return p.guess_is_usable && __all_sync(~0u, right || (p.batch > 1 && lane >= p.batch));
}

/// Finds the partition and where part `part` begins, in a batch of at most kWarpBatch. Returns false where
/// the part is empty. One warp calls it; `mine` is what load_entry_of_lane loaded.
template <Shape kShape>
__device__ __forceinline__ bool find_start_in_warp(const KernelParams& p, int32_t part, const Entry& mine,
                                                   int lane, Partition* partition, Start* start) {
  const Sequence sequence = sequence_of(p, mine);
  const int32_t units = units_of<kShape>(p, sequence);
  const bool one = p.batch == 1;
  const int32_t up_to = one ? units : sum_up_to_lane(units, lane);
  const int32_t total = one ? units : __shfl_sync(~0u, up_to, 31);
  *partition = make_partition(total, p.parts, p.by_parts, p.min_units, p.segment_cost);
  const int32_t begin = part * partition->units_per_part;
  if (begin >= total) return false;
  if (one) {
    *start = {0, 0, sequence};
    return true;
  }
  const uint32_t holders = __ballot_sync(~0u, up_to - units <= begin && begin < up_to);
  const int holder = __ffs(static_cast<int>(holders)) - 1;  // exactly one
  *start = {holder, __shfl_sync(~0u, up_to - units, holder), from_lane(p, mine, holder)};
  return true;
}

/// The same for any batch, by all threads of the block; the start goes to smem.start. Thread t adds up the
/// t-th run of neighbouring sequences. Passes two barriers of the block.
template <Shape kShape>
__device__ __forceinline__ bool find_start_in_block(const KernelParams& p, int32_t part,
                                                    SharedMemory<kShape>& smem, Partition* partition) {
  constexpr int kThreads = Derived<kShape>::kThreads;
  constexpr int kBatch = 4;  // entries whose loads are in flight
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int32_t batch = p.batch;
  const int32_t run = (batch + kThreads - 1) / kThreads;
  const int32_t first = min(static_cast<int32_t>(threadIdx.x) * run, batch);
  const int32_t last = min(first + run, batch);

  int32_t units = 0;
  for (int32_t b = first; b < last; b += kBatch) {
    Entry e[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) e[i] = load_own_entry<kShape>(p, smem, b + i, last);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) units += units_of<kShape>(p, sequence_of(p, e[i]));
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
    for (int32_t b = first; b < last; ++b) {  // these loads hit L1
      const Sequence s = sequence_of(p, load_own_entry<kShape>(p, smem, b, last));
      const int32_t here = units_of<kShape>(p, s);
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
