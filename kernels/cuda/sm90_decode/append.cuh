// Append in the same launch (kAppend): the part of the producer warps.
//
// The copy engine reads a sequence's rows up to `old_len`, its first new row; rows from there on arrive as
// zeros. So no copy reads what the launch writes, and no block waits for another. The append warp
// (append_warp.cuh) writes new rows into the cache, and into the tile in shared memory before the consumers
// are told that the tile is complete.
#pragma once

#include "kernels/cuda/common/announce.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// The new tokens of the sequences that a producer warp walks. Empty where kAppend is false.
template <bool kAppend>
class NewTokens {};

template <>
class NewTokens<true> {
 public:
  /// Loads the new tokens of sequence b into this lane, if the sequence exists.
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

  /// The current sequence's first new row, given its length with the new rows.
  __device__ __forceinline__ int32_t old_len(int32_t k_len) const {
    return max(min(k_len - (end_ - begin_), k_len), 0);
  }

  __device__ __forceinline__ int32_t end() const { return end_; }

  __device__ __forceinline__ AppendItem described(const Item& item) const {
    return {item, old_len(item.k_len), end_};
  }

 private:
  int32_t begin_ = 0, end_ = 0;            ///< tokens [begin_, end_) of k_new: the current sequence's
  int32_t lane_begin_ = 0, lane_end_ = 0;  ///< the same of the sequence that this lane holds
};

/// Whether tile `tile` of a sequence holds new rows.
template <Shape kShape>
__device__ __forceinline__ bool holds_new(int32_t tile, int32_t old_len, int32_t k_len) {
  return max(old_len, tile * kShape.tile_tokens) < min(k_len, (tile + 1) * kShape.tile_tokens);
}

/// The barrier on which a tile's copies land: the append warp's if the tile holds new rows, else the
/// consumers'.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_tile(SharedMemory<kShape>& smem, uint32_t slot,
                                                             bool has_new) {
  if constexpr (kShape.append) {
    if (has_new) return append_memory<kShape>(smem).kv_landed[slot];
  }
  return smem.kv_ring.full[slot];
}

/// The barrier on which the copies of queries land.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_queries(SharedMemory<kShape>& smem, uint32_t stage) {
  if constexpr (kShape.append) return append_memory<kShape>(smem).q_landed[stage];
  return smem.q_ring.full[stage];
}

/// Announces `bytes` of queries on `landing`, which landing_of_queries() returned. With append the queries
/// have an arrival of their own. Otherwise the item's arrival counts for both.
template <Shape kShape>
__device__ __forceinline__ void announce_queries(hopper::Mbarrier& landing, uint32_t bytes) {
  if constexpr (kShape.append) {
    landing.arrive_expecting(bytes);
  } else {
    hopper::announce_bytes(landing, bytes);
  }
}

/// The barrier on which an item is published.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landing_of_item(SharedMemory<kShape>& smem, uint32_t stage) {
  if constexpr (kShape.append) return append_memory<kShape>(smem).item_full[stage];
  return smem.q_ring.full[stage];
}

/// Initialises the append barriers. The append warp calls it before the block's first barrier.
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
