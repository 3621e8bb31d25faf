// Appending in the same launch (kAppend): what the producers know of it.
//
// The copy engine reads a sequence's rows up to `old_len`, the first new one; those behind come as zeros. So
// nothing that a launch writes is read by a copy, and no block waits for another. A warp of its own
// (append_warp.cuh) puts new rows into the tile in shared memory, before the consumers are told of it, and
// into the cache.
#pragma once

#include "kernels/cuda/common/announce.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// The new tokens of the sequences that a producer warp walks; where kAppend is not set, nothing.
template <bool kAppend>
class NewTokens {};

template <>
class NewTokens<true> {
 public:
  /// Loads what this lane holds for the warp: those of sequence b, if there is one.
  __device__ __forceinline__ void load_of_lane(const KernelParams& p, int32_t b) {
    if (b < p.batch) {
      lane_begin_ = p.attention.cu_seqlens_new[b];
      lane_end_ = p.attention.cu_seqlens_new[b + 1];
    }
  }

  /// Makes sequence b the current one.
  __device__ __forceinline__ void load(const KernelParams& p, int32_t b) {
    begin_ = p.attention.cu_seqlens_new[b];
    end_ = p.attention.cu_seqlens_new[b + 1];
  }

  /// Makes the sequence that lane `lane` holds the current one.
  __device__ __forceinline__ void take_from_lane(int lane) {
    begin_ = __shfl_sync(~0u, lane_begin_, lane);
    end_ = __shfl_sync(~0u, lane_end_, lane);
  }

  /// Where the current sequence's new rows begin, given its length with them.
  __device__ __forceinline__ int32_t old_len(int32_t k_len) const {
    return max(min(k_len - (end_ - begin_), k_len), 0);
  }

  __device__ __forceinline__ int32_t end() const { return end_; }

  __device__ __forceinline__ AppendItem described(const Item& item) const {
    return {item, old_len(item.k_len), end_};
  }

 private:
  int32_t begin_ = 0, end_ = 0;  ///< in k_new, of the current sequence
  int32_t lane_begin_ = 0, lane_end_ = 0;
};

/// Whether tile `tile` of a sequence holds new rows.
template <Shape kShape>
__device__ __forceinline__ bool holds_new(int32_t tile, int32_t old_len, int32_t k_len) {
  return max(old_len, tile * kShape.tile_tokens) < min(k_len, (tile + 1) * kShape.tile_tokens);
}

/// The barrier that a tile's copies land at.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_tile(SharedMemory<kShape>& smem, uint32_t slot,
                                                             bool has_new) {
  if constexpr (kShape.append) {
    if (has_new) return append_memory<kShape>(smem).kv_landed[slot];
  }
  return smem.kv_ring.full[slot];
}

/// The barrier that the copies of queries land at.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_queries(SharedMemory<kShape>& smem, uint32_t stage) {
  if constexpr (kShape.append) return append_memory<kShape>(smem).q_landed[stage];
  return smem.q_ring.full[stage];
}

/// Announces `bytes` of queries at landing_of_queries(). They have an arrival of their own where a launch
/// appends; elsewhere that of the item stands for both.
template <Shape kShape>
__device__ __forceinline__ void announce_queries(hopper::Mbarrier& landing, uint32_t bytes) {
  if constexpr (kShape.append) {
    landing.arrive_expecting(bytes);
  } else {
    hopper::announce_bytes(landing, bytes);
  }
}

/// The barrier at which an item is handed over.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_item(SharedMemory<kShape>& smem, uint32_t stage) {
  if constexpr (kShape.append) return append_memory<kShape>(smem).item_full[stage];
  return smem.q_ring.full[stage];
}

/// By the warp that appends, before the block's first barrier.
template <Shape kShape>
__device__ __forceinline__ void init_append_barriers(SharedMemory<kShape>& smem, int lane) {
  if (lane < kShape.slots) append_memory<kShape>(smem).kv_landed[lane].init(1);
  if (lane < kQStages) {
    append_memory<kShape>(smem).item_full[lane].init(1);
    append_memory<kShape>(smem).q_landed[lane].init(1);
  }
  hopper::fence_barrier_init();
}

}  // namespace attnbench::sm90_decode
