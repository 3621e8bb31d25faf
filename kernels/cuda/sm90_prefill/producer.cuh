// The producer warp: takes work and keeps the rings of Q, K and V tiles filled by the copy engine.
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

/// Loads K and V tiles of block_n keys. Packed KV and pages of block_n keys or more take one copy per tile,
/// issued by lane 0; smaller pages one copy per page and chunk of 64 channels, each issued by a lane of its
/// own.
template <Shape kShape>
class KvLoader {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ KvLoader(const KernelParams& p, int lane) : p_(p) {
    const bool whole = p.box_rows == kShape.block_n;
    const int chunks = whole ? 1 : D::kChunks;
    issues_ = lane < chunks * (kShape.block_n / p.box_rows);
    first_row_ = lane / chunks * p.box_rows;
    chunk_ = lane % chunks;
  }

  /// This lane's box of KV block n. Rows from k_len on are not part of it, nor is their block of the pool
  /// looked up.
  __device__ __forceinline__ KvBox locate(int k_len, int kv_base, int n) const {
    const int row = n * kShape.block_n + first_row_;
    const int valid = max(0, min(k_len - row, p_.box_rows));
    if (p_.block_table == nullptr) return {0, kv_base + row, valid};
    if (!issues_ || valid == 0) return {0, 0, 0};
    const int32_t* table = p_.block_table + kv_base * p_.block_table_stride;
    return {table[row / p_.block_size], row % p_.block_size, valid};
  }

  /// Fills `tile`, whose last readers have arrived on `empty`, and announces it on `full`.
  __device__ __forceinline__ void load(uint8_t* tile, const CUtensorMap& map, const KvRows& rows, int kv_head,
                                       const KvBox& box, hopper::Mbarrier& full, int lane) const {
    // The whole tile counts, rows that come as zeros included.
    if (lane == 0) full.arrive_expecting(D::kKvBytes);
    __syncwarp();
    if (!issues_) return;
    uint8_t* destination = tile + chunk_ * D::kKvChunkBytes + first_row_ * hopper::kChunkBytes;
    const int32_t row = box.block * rows.block_rows + box.row;
    hopper::tma_load(destination, map,
                     {0, hopper::kRowBound - box.valid, kv_head * rows.head_chunks + chunk_, row + box.valid,
                      hopper::kRowBound},
                     full);
  }

 private:
  const KernelParams& p_;
  bool issues_;
  int first_row_;
  int chunk_;
};

/// Runs in one warp for the life of the block. Order of the loads, as the consumers use them: a tile's Q,
/// then K of each block before V of the block before, also where that is the last of the tile before.
template <Shape kShape>
__device__ __forceinline__ void produce(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                        const CUtensorMap& map_v, const KernelParams& p,
                                        SharedMemory<kShape>& smem, int lane) {
  using D = Derived<kShape>;
  const KvLoader<kShape> loader(p, lane);
  hopper::RingPlace<kShape.q_stages> q;
  hopper::RingPlace<kKvStages> k, v;
  WorkSource source(p, lane);

  const auto load_k = [&](const KvBox& box, int kv_head) {
    smem.k_empty[k.stage()].wait(k.parity() ^ 1);  // a fresh ring is empty
    loader.load(smem.k[k.stage()], map_k, p.k_rows, kv_head, box, smem.k_full[k.stage()], lane);
    k.advance();
  };
  const auto load_v = [&](const KvBox& box, int kv_head) {
    smem.v_empty[v.stage()].wait(v.parity() ^ 1);
    loader.load(smem.v[v.stage()], map_v, p.v_rows, kv_head, box, smem.v_full[v.stage()], lane);
    v.advance();
  };

  int32_t word;
  KvBox pending{};  // V of the block before is still to be loaded
  int pending_head = -1;
  while (source.get(&word)) {
    // The item is written before the arrival that publishes it, and after its stage's last readers arrived.
    smem.q_empty[q.stage()].wait(q.parity() ^ 1);
    WorkItem& item = smem.item[q.stage()];
    if (lane < 8) reinterpret_cast<int32_t*>(&item)[lane] = word;
    __syncwarp();
    const int n_begin = item.n_begin;
    const int n_end = item.n_end;
    const int k_len = item.k_len;
    const int kv_base = item.kv_base;
    const int kv_head = item.head / p.head_tiles_per_kv_head;
    if (lane == 0) {
      hopper::Mbarrier& full = smem.q_full[q.stage()];
      if (n_begin >= n_end) {
        full.arrive();
      } else {
        full.arrive_expecting(D::kChunks * p.tokens_per_tile * p.heads_per_tile * hopper::kChunkBytes);
        for (int c = 0; c < D::kChunks; ++c) {
          hopper::tma_load(smem.q[q.stage()] + c * D::kQChunkBytes, map_q,
                           {0, item.head * p.heads_per_tile, item.q_row, c}, full);
        }
      }
    }
    __syncwarp();
    q.advance();

    for (int n = n_end - 1; n >= n_begin; --n) {
      // Ahead of the wait for a free stage, which hides the latency of the block table.
      const KvBox box = loader.locate(k_len, kv_base, n);
      load_k(box, kv_head);
      if (pending_head >= 0) load_v(pending, pending_head);
      pending = box;
      pending_head = kv_head;
      if (n == n_end - 1) source.look_ahead();
    }
    if (n_begin >= n_end) source.look_ahead();
  }
  if (pending_head >= 0) load_v(pending, pending_head);

  smem.q_empty[q.stage()].wait(q.parity() ^ 1);
  if (lane == 0) {
    smem.item[q.stage()].head = -1;  // the end
    smem.q_full[q.stage()].arrive();
  }
}

}  // namespace attnbench::sm90_prefill
