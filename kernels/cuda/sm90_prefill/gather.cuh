// The gathering warps of instances for small pages, of 1 token for instance: they copy K and V row by row with
// cp.async, where the copy engine would need one copy for each row and chunk.
#pragma once

#include "kernels/cuda/common/async_copy.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_prefill {

/// The warp that loads the tiles of K, or that of V.
template <Shape kShape, bool kIsV>
class Gatherer {
  using D = Derived<kShape>;
  static constexpr int kRowsOfLane = kShape.block_n / 32;  ///< of a tile, whose places a lane finds
  static constexpr int kRowBytes = kShape.head_dim * 2;
  static constexpr int kStepBytes = 64;  ///< of a row, in one instruction: 4 lanes have 16 bytes each
  static constexpr int kNearEnd = 2;     ///< as in KvLoader
  static_assert(kShape.block_n % 32 == 0 && kRowBytes % hopper::kChunkBytes == 0);
  static_assert(D::kDimV == kShape.head_dim && D::kChunkBytes == hopper::kChunkBytes);

  /// Blocks of the pool that hold this lane's rows of a tile; -1: zeros, because the sequence has ended, or
  /// because no query sees the row.
  using Pages = int32_t[kRowsOfLane];

 public:
  __device__ __forceinline__ Gatherer(const KernelParams& p, SharedMemory<kShape>& smem, int lane)
      : p_(p), smem_(smem), from_(kIsV ? p.gathered.v : p.gathered.k), lane_(lane) {
    // 16-byte unit u of row r of a group lies at unit u ^ r of line r of its chunk. A lane has a row of each
    // group, and units `unit` and unit + 4 of each chunk. Rows r and r + 4 are in neighbouring lanes, so that
    // eight lanes write to all banks.
    row_ = lane / 8 + lane / 4 % 2 * 4;
    in_group_ = row_ * D::kChunkBytes + (lane % 4 ^ row_) * 16;
  }

  __device__ __forceinline__ void run() {
    for (uint32_t parity = 0;; parity ^= 1) {
      smem_.next_full.wait(parity);
      const WorkItem item = take_item(smem_.next_item, lane_);
      if (item.head < 0) return;
      if constexpr (kIsV) {
        gather(item, smem_.v_ring, smem_.v);
      } else {
        gather(item, smem_.k_ring, smem_.k);
      }
    }
  }

 private:
  template <int kStages, int kBytes>
  __device__ __forceinline__ void gather(const WorkItem& item, hopper::Ring<kStages>& ring,
                                         uint8_t (&buffers)[kStages][kBytes]) {
    const uint8_t* const head =
        from_.first + p_.by_head_tiles_per_kv_head.divide(item.head) * from_.head_bytes + lane_ % 4 * 16;
    if (item.n_begin >= item.n_end) near_end();
    Pages pages{};
    if (item.n_begin < item.n_end) find(pages, item, item.n_end - 1);
#pragma unroll 1
    for (int n = item.n_end - 1; n >= item.n_begin; --n) {
      if (n == min(item.n_begin + kNearEnd, item.n_end - 1)) near_end();
      ring.await_empty(place_);
      copy(hopper::shared_address(buffers[place_.stage()]) + in_group_, head, pages, n);
      if (n > item.n_begin) find(pages, item, n - 1);  // while the copies are under way
      commit_async();
      wait_async<0>();
      hopper::fence_for_wgmma();
      __syncwarp();
      if (lane_ == 0) ring.full_at(place_).arrive();
      place_.advance();
    }
  }

  /// The scheduling warp may draw the next work.
  __device__ __forceinline__ void near_end() const {
    if (lane_ == 0) smem_.next_empty.arrive();
  }

  /// This lane's row i of KV block n, as a key of the sequence.
  __device__ __forceinline__ int key_of(int n, int i) const { return n * kShape.block_n + 32 * i + lane_; }

  /// Finds the blocks of this lane's rows of KV block n.
  __device__ __forceinline__ void find(Pages& pages, const WorkItem& item, int n) const {
    const int first_seen = item.n_begin * kShape.block_n + item.expired;
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int key = key_of(n, i);
      pages[i] = key < first_seen || key >= item.k_len
                     ? -1
                     : p_.block_table[item.kv_base * p_.block_table_stride + p_.by_block_size.divide(key)];
    }
  }

  /// Copies KV block n to `tile`, where this lane's first unit lies. `head`: its first unit of the pool.
  __device__ __forceinline__ void copy(uint32_t tile, const uint8_t* head, const Pages& pages, int n) const {
#pragma unroll
    for (int part = 0; part < kRowsOfLane; ++part) {
      const int key = key_of(n, part);
      const int in_block = key - p_.by_block_size.divide(key) * p_.block_size;
      const int32_t own_row = max(0, pages[part]) * from_.block_rows + in_block;
      const uint32_t exist = __ballot_sync(~0u, pages[part] >= 0);
#pragma unroll
      for (int group = 0; group < 32 / hopper::kGroupRows; ++group, tile += D::kKGroupBytes) {
        const int lane_of_row = hopper::kGroupRows * group + row_;
        const auto row = static_cast<uint32_t>(__shfl_sync(~0u, own_row, lane_of_row));
        copy_row(tile, head + uint64_t{row} * from_.row_bytes,
                 exist == ~0u || (exist >> lane_of_row & 1) != 0);
      }
    }
  }

  /// Copies this lane's units of a row.
  __device__ __forceinline__ static void copy_row(uint32_t target, const uint8_t* source, bool exists) {
#pragma unroll
    for (int at = 0; at < kRowBytes; at += kStepBytes) {
      // Unit u + 4 lies at (u + 4) ^ r = (u ^ r) ^ 4, because u is below 4.
      const uint32_t chunk = at / hopper::kChunkBytes * D::kAtomBytes;
      copy_async_16((at % hopper::kChunkBytes == 0 ? target : target ^ 64) + chunk, source + at, exists);
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const GatheredRows& from_;
  const int lane_;
  int row_;            ///< of this lane, in each group of 8
  uint32_t in_group_;  ///< where its first unit lies there
  hopper::RingPlace<kIsV ? D::kVStages : D::kKStages> place_;
};

}  // namespace attnbench::sm90_prefill
