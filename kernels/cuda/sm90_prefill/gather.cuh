// The warps that load K and V in instances for small pages, each a part of every tile. Pages of whole groups of 8
// rows come by the copy engine: one warp alone would issue its copies too slowly. Rows of other pages, such as pages
// of 1 token, are copied one by one with cp.async: the copy engine would need a copy for each row and chunk.
#pragma once

#include "kernels/cuda/common/async_copy.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/producer.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_prefill {

/// Copies part `part` of the tiles of K and V row by row.
template <Shape kShape>
class Gatherer {
  using D = Derived<kShape>;
  static constexpr int kRowsOfLane = D::kPartRows / 32;  ///< of a part, whose places a lane finds
  static constexpr int kRowBytes = kShape.head_dim * 2;
  static constexpr int kStepBytes = 64;  ///< of a row, in one instruction: 4 lanes have 16 bytes each
  /// Tiles under way behind the one that is announced. With two stages of K a second one would come too late.
  static constexpr int kBehind = D::kKStages > 2 ? 2 : 1;
  static_assert(D::kPartRows % 32 == 0 && kRowBytes % hopper::kChunkBytes == 0);
  static_assert(D::kDimV == kShape.head_dim && D::kChunkBytes == hopper::kChunkBytes);

  /// Blocks of the pool that hold this lane's rows of a part; -1: zeros, because the sequence has ended, or
  /// because no query sees the row.
  struct Pages {
    int32_t block[kRowsOfLane];
  };

 public:
  __device__ __forceinline__ Gatherer(const KernelParams& p, SharedMemory<kShape>& smem, int part, int lane)
      : p_(p), smem_(smem), first_row_(part * D::kPartRows + lane) {
    // 16-byte unit u of row r of a group lies at unit u ^ r of line r of its chunk. A lane has a row of each
    // group, and units `unit` and unit + 4 of each chunk.
    const int row = static_cast<int>(row_of_group(lane));
    in_tile_ = part * D::template kPartBytes<false> + row * D::kChunkBytes + (lane % 4 ^ row) * 16;
  }

  /// Loads the tiles of an item, in the order of KvLoader. Calls `near_end` as it does.
  template <class Action>
  __device__ __forceinline__ void load(const WorkItem& item, Action near_end) {
    if (item.n_begin >= item.n_end) {
      near_end();
      return;
    }
    const int kv_head = p_.by_head_tiles_per_kv_head.divide(item.head);
    tiles_ += item.n_end - 1;  // KV block n is tile tiles_ - n of K, and of V
    const int first_seen = item.n_begin * kShape.block_n + item.expired;
    Pages now, before{};
    find(now, item, first_seen, item.n_end - 1);
#pragma unroll 1
    for (int n = item.n_end - 1;; --n) {
      if (n == min(item.n_begin + kNearEnd, item.n_end - 1)) near_end();
      if (n >= item.n_begin) copy(smem_.k_ring, smem_.k, tiles_ - n, p_.gathered.k, kv_head, now, n);
      const Pages current = now;
      if (n > item.n_begin) find(now, item, first_seen, n - 1);  // while copies are under way
      if (n < item.n_end - 1)
        copy(smem_.v_ring, smem_.v, tiles_ - (n + 1), p_.gathered.v, kv_head, before, n + 1);
      if (n < item.n_begin) break;
      before = current;
    }
    if constexpr (kBehind == 2) announce<1>(landing_[0]);
    announce<0>(landing_[kBehind - 1]);
    landing_[0] = landing_[kBehind - 1] = 0;
    tiles_ -= item.n_begin - 1;
  }

 private:
  /// This lane's row i of this warp's part of KV block n, as a key of the sequence.
  __device__ __forceinline__ int key_of(int n, int i) const {
    return n * kShape.block_n + first_row_ + 32 * i;
  }

  __device__ __forceinline__ int lane() const { return first_row_ % 32; }

  /// The row of each group of 8 that a lane copies. Rows r and r + 4 are in neighbouring lanes, so that eight
  /// lanes write to all banks.
  __device__ __forceinline__ static uint32_t row_of_group(uint32_t lane) {
    return lane / 8 + lane / 4 % 2 * 4;
  }

  /// Finds the blocks of this lane's rows of KV block n.
  __device__ __forceinline__ void find(Pages& pages, const WorkItem& item, int first_seen, int n) const {
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int key = key_of(n, i);
      pages.block[i] =
          key < first_seen || key >= item.k_len
              ? -1
              : p_.block_table[item.kv_base * p_.block_table_stride + p_.by_block_size.divide(key)];
    }
  }

  /// Starts to copy KV block n of K or of V, tile `tile` of a ring. Then announces the copies before it, which
  /// have had time to arrive.
  template <int kStages, int kBytes>
  __device__ __forceinline__ void copy(hopper::Ring<kStages>& ring, uint8_t (&buffers)[kStages][kBytes],
                                       uint32_t tile, const GatheredRows& from, int kv_head,
                                       const Pages& pages, int n) {
    const hopper::RingPlace<kStages> place{tile};
    ring.await_empty(place);
    uint32_t lane = this->lane();
    // What follows from these is computed anew for each tile: kept, it would spill other registers.
    asm volatile("" : "+r"(lane), "+r"(kv_head));
    const uint8_t* head = from.first + kv_head * from.head_bytes + lane % 4 * 16;
    asm volatile("" : "+l"(head));  // one sum, not one for each row
    // Unit u + 4 lies at (u + 4) ^ r = (u ^ r) ^ 4, because u is below 4.
    uint32_t targets[2];
    targets[0] = hopper::shared_address(buffers[place.stage()]) + in_tile_;
    targets[1] = targets[0] ^ 64;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int key = key_of(n, i);
      const int in_block = key - p_.by_block_size.divide(key) * p_.block_size;
      const int32_t block = pages.block[i];
      const int32_t own_row = block < 0 ? -1 : block * from.block_rows + in_block;
#pragma unroll
      for (int group = 0; group < 32 / hopper::kGroupRows; ++group) {
        const int row = __shfl_sync(~0u, own_row, hopper::kGroupRows * group + row_of_group(lane));
        const uint32_t at = (i * 32 / hopper::kGroupRows + group) * D::kKGroupBytes;
        copy_row(targets, at, head + uint64_t{static_cast<uint32_t>(max(row, 0))} * from.row_bytes, row >= 0);
      }
    }
    commit_async();
    if (landing_[0] != 0) announce<kBehind>(landing_[0]);
    landing_[0] = landing_[kBehind - 1];
    landing_[kBehind - 1] = hopper::shared_address(&ring.full_at(place));
  }

  /// Announces the copies of the barrier at `landing`, behind which kLater groups of copies were started.
  template <int kLater>
  __device__ __forceinline__ void announce(uint32_t landing) {
    wait_async<kLater>();
    hopper::fence_for_wgmma();
    __syncwarp();
    if (lane() == 0) static_cast<hopper::Mbarrier*>(__cvta_shared_to_generic(landing))->arrive();
  }

  /// Copies this lane's units of a row to `offset` bytes behind `targets`: those of even steps and of odd ones.
  __device__ __forceinline__ static void copy_row(const uint32_t (&targets)[2], uint32_t offset,
                                                  const uint8_t* source, bool exists) {
#pragma unroll
    for (int at = 0; at < kRowBytes; at += kStepBytes) {
      const uint32_t chunk = at / hopper::kChunkBytes * D::kAtomBytes;
      copy_async_16(targets[at / kStepBytes % 2] + offset + chunk, source + at, exists);
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int first_row_;  ///< of a tile, whose place this lane finds
  uint32_t in_tile_;     ///< where the first unit lies that this lane copies
  uint32_t tiles_ = 0;   ///< of K, and of V, so far
  /// Shared addresses of the barriers of copies that are not announced, in their order; 0: none.
  uint32_t landing_[kBehind] = {};
};

/// One of the warps, for the life of the block.
template <Shape kShape>
__device__ __forceinline__ void load_small_pages(const Maps& maps, const KernelParams& p,
                                                 SharedMemory<kShape>& smem, int part, int lane) {
  if (p.gathered.k.first == nullptr) {
    load_tiles(maps, p, smem, lane, part);
  } else {
    Gatherer<kShape> gatherer(p, smem, part, lane);
    follow(smem, lane, [&](const WorkItem& item, auto near_end) { gatherer.load(item, near_end); });
  }
}

}  // namespace attnbench::sm90_prefill
