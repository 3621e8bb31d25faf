// The producer warps: one draws work; the other takes it, loads Q, and keeps the rings of K and V tiles
// filled by the copy engine.
#pragma once

#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/sm90_prefill/scheduler.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_prefill {

/// The rows of one copy: `valid` rows from row `row` of block `block` of the pool (packed: block 0, row of
/// the tensor), zeros below.
struct KvBox {
  int32_t block;
  int32_t row;
  int32_t valid;
};

/// Loads the K and V tiles of block_n keys. Packed KV and pages of block_n keys or more take one copy per
/// tile; smaller pages one copy per page and chunk of 64 channels. A lane finds each page's place; one lane
/// issues all copies, which takes a fifth of the time that it takes a lane of its own each.
template <Shape kShape>
class KvLoader {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ KvLoader(const CUtensorMap& map_k, const CUtensorMap& map_v,
                                      const KernelParams& p, SharedMemory<kShape>& smem, int lane)
      : map_k_(map_k),
        map_v_(map_v),
        p_(p),
        smem_(smem),
        lane_(lane),
        boxes_(kShape.block_n / p.box_rows),
        lane_row_(lane < boxes_ ? lane * p.box_rows : kNoRow) {}

  /// Loads the keys and values of a tile of queries: K of each block before V of the block before, also where
  /// that is the last of the tile before, as the consumers use them. `near_end` runs when it is time to find
  /// out what comes after the tile.
  template <class Action>
  __device__ __forceinline__ void load(int n_begin, int n_end, int k_len, int kv_base, int kv_head,
                                       Action near_end) {
    if (n_begin >= n_end) near_end();
    KvBox box = locate(k_len, kv_base, max(n_end - 1, 0));
    for (int n = n_end - 1; n >= n_begin; --n) {
      if (n == min(n_begin + kNearEnd, n_end - 1)) near_end();
      // Ahead of two waits for free stages, which hide the latency of the block table.
      KvBox next{};
      if (n > n_begin) next = locate(k_len, kv_base, n - 1);
      load_k(box, kv_head);
      if (pending_head_ >= 0) load_v(pending_, pending_head_);
      pending_ = box;
      pending_head_ = kv_head;
      box = next;
    }
  }

  /// Loads what is still missing of the last tile.
  __device__ __forceinline__ void finish() {
    if (pending_head_ >= 0) load_v(pending_, pending_head_);
    pending_head_ = -1;
  }

 private:
  static constexpr int kNoRow = 1 << 29;  ///< beyond all keys
  static constexpr int kNearEnd = 2;      ///< KV blocks before a tile's last

  /// This lane's box of KV block n. Rows from k_len on are not part of it, nor is their block of the pool
  /// looked up.
  __device__ __forceinline__ KvBox locate(int k_len, int kv_base, int n) const {
    const int row = n * kShape.block_n + lane_row_;
    const int valid = max(0, min(k_len - row, p_.box_rows));
    if (p_.block_table == nullptr) return {0, kv_base + row, valid};
    if (valid == 0) return {0, 0, 0};
    const int32_t* table = p_.block_table + kv_base * p_.block_table_stride;
    const int32_t block = p_.by_block_size.quotient(row);
    return {table[block], row - block * p_.block_size, valid};
  }

  __device__ __forceinline__ void load_k(const KvBox& box, int kv_head) {
    smem_.k_empty[k_.stage()].wait(k_.parity() ^ 1);  // a fresh ring is empty
    copy(smem_.k[k_.stage()], map_k_, p_.k_rows, kv_head, box, smem_.k_full[k_.stage()]);
    k_.advance();
  }

  __device__ __forceinline__ void load_v(const KvBox& box, int kv_head) {
    smem_.v_empty[v_.stage()].wait(v_.parity() ^ 1);
    copy(smem_.v[v_.stage()], map_v_, p_.v_rows, kv_head, box, smem_.v_full[v_.stage()]);
    v_.advance();
  }

  /// Fills `tile`, whose last readers have arrived at its barrier, and announces it on `full`: the whole of
  /// it counts, rows that come as zeros included.
  __device__ __forceinline__ void copy(uint8_t* tile, const CUtensorMap& map, const KvRows& rows, int kv_head,
                                       const KvBox& box, hopper::Mbarrier& full) const {
    if (lane_ == 0) full.arrive_expecting(D::kKvBytes);
    __syncwarp();
    const int32_t lane_end = box.block * rows.block_rows + box.row + box.valid;
    const int32_t chunk = kv_head * rows.head_chunks;
    const int32_t box_bytes = p_.box_rows * hopper::kChunkBytes;
    const bool issues = hopper::elect_lane();
    if (p_.box_rows == kShape.block_n) {
      copy_box(tile, map, __shfl_sync(~0u, box.valid, 0), chunk, __shfl_sync(~0u, lane_end, 0), issues, full);
      return;
    }
#pragma unroll(D::kChunks <= 2 ? 2 : 1)
    for (int i = 0; i < boxes_; ++i, tile += box_bytes) {
      const int32_t valid = __shfl_sync(~0u, box.valid, i);
      const int32_t end = __shfl_sync(~0u, lane_end, i);
#pragma unroll
      for (int c = 0; c < D::kChunks; ++c) {
        copy_box(tile + c * D::kKvChunkBytes, map, valid, chunk + c, end, issues, full);
      }
    }
  }

  __device__ __forceinline__ void copy_box(uint8_t* destination, const CUtensorMap& map, int32_t valid,
                                           int32_t chunk, int32_t end, bool issues,
                                           hopper::Mbarrier& full) const {
    if (issues) {
      hopper::tma_load(destination, map, {0, hopper::kRowBound - valid, chunk, end, hopper::kRowBound}, full);
    }
  }

  const CUtensorMap& map_k_;
  const CUtensorMap& map_v_;
  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int lane_;
  const int boxes_;     ///< copies of a tile, of all its chunks
  const int lane_row_;  ///< of this lane's copy in the tile; kNoRow where it has none
  hopper::RingPlace<kKStages> k_;
  hopper::RingPlace<D::kVStages> v_;
  KvBox pending_{};  ///< V of the block before is still to be loaded
  int pending_head_ = -1;
};

/// The warp that draws work, when the first producer warp comes near the end of the tile before.
template <Shape kShape>
__device__ __forceinline__ void schedule(const KernelParams& p, SharedMemory<kShape>& smem, int lane) {
  WorkSource<kShape.block_n> source(p, smem.notes, lane);
  for (uint32_t parity = 1;; parity ^= 1) {
    const bool more = source.has_work();
    WorkItem item{};
    item.head = -1;  // the end
    if (more) item = source.item();
    smem.next_empty.wait(parity);
    if (lane == 0) {
      smem.next_item = item;
      smem.next_full.arrive();
    }
    if (!more) break;
    // Not before: blocks that hoard work are slower, by 3 to 7 %.
    smem.next_empty.wait(parity ^ 1);
    source.draw();
  }
}

/// The first producer warp, for the life of the block: takes work, loads Q, and its share of K and V.
template <Shape kShape>
__device__ __forceinline__ void produce(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                        const CUtensorMap& map_v, const KernelParams& p,
                                        SharedMemory<kShape>& smem, int lane) {
  using D = Derived<kShape>;
  KvLoader<kShape> loader(map_k, map_v, p, smem, lane);
  hopper::RingPlace<kShape.q_stages> q;

  for (uint32_t parity = 0;; parity ^= 1) {
    // Not behind the wait for the only stage of Q.
    if constexpr (D::kHasGuests) loader.finish();
    // The item is written before the arrival that publishes it, and after its stage's last readers arrived.
    smem.q_empty[q.stage()].wait(q.parity() ^ 1);
    smem.next_full.wait(parity);
    const WorkItem item = take_item(smem.next_item, lane);
    const bool sees_keys = item.n_begin < item.n_end;
    hopper::Mbarrier& full = smem.q_full[q.stage()];
    if (lane == 0) {
      smem.item[q.stage()] = item;
      if (sees_keys) {
        full.arrive_expecting(D::kChunks * p.tokens_per_tile * p.heads_per_tile * hopper::kChunkBytes);
      } else {
        full.arrive();
      }
    }
    __syncwarp();
    if (sees_keys && hopper::elect_lane()) {
#pragma unroll
      for (int c = 0; c < D::kChunks; ++c) {
        hopper::tma_load(smem.q[q.stage()] + c * D::kQChunkBytes, map_q,
                         {0, item.head * p.heads_per_tile, item.q_row, c}, full);
      }
    }
    __syncwarp();
    if (item.head < 0) break;
    q.advance();
    loader.load(item.n_begin, item.n_end, item.k_len, item.kv_base,
                p.by_head_tiles_per_kv_head.quotient(item.head), [&] {
                  if (lane == 0) smem.next_empty.arrive();
                });
  }
  loader.finish();
}

}  // namespace attnbench::sm90_prefill
