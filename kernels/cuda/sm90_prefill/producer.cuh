// The producer warps: one takes work and loads Q; it, or all four where pages are small, keep the rings of K
// and V tiles filled by the copy engine.
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

/// Loads one warp's share of the K and V tiles of block_n keys. Packed KV and pages of block_n keys or more
/// take one copy per tile; smaller pages one copy per page and chunk of 64 channels, each issued by a lane of
/// its own, spread over the producer warps.
template <Shape kShape>
class KvLoader {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ KvLoader(const CUtensorMap& map_k, const CUtensorMap& map_v,
                                      const KernelParams& p, SharedMemory<kShape>& smem, int warp, int lane)
      : map_k_(map_k), map_v_(map_v), p_(p), smem_(smem), announces_(warp == 0 && lane == 0) {
    const int chunks = p.box_rows == kShape.block_n ? 1 : D::kChunks;
    const int boxes = chunks * (kShape.block_n / p.box_rows);
    const int per_warp = (boxes + p.kv_warps - 1) / p.kv_warps;
    const int box = warp * per_warp + lane;
    issues_ = lane < per_warp && box < boxes;
    first_row_ = box / chunks * p.box_rows;
    chunk_ = box % chunks;
  }

  /// Loads the keys and values of a tile of queries: K of each block before V of the block before, also where
  /// that is the last of the tile before, as the consumers use them. `draw` runs a few blocks before the
  /// last, `look_ahead` two blocks later.
  template <class Draw, class LookAhead>
  __device__ __forceinline__ void load(int n_begin, int n_end, int k_len, int kv_base, int kv_head, Draw draw,
                                       LookAhead look_ahead) {
    const int look_ahead_at = D::kLateDraw ? min(n_begin + 3, n_end - 1) : n_end - 1;
    if (D::kLateDraw && n_end - 1 < look_ahead_at + kDrawBefore) draw();
    for (int n = n_end - 1; n >= n_begin; --n) {
      if (D::kLateDraw && n == look_ahead_at + kDrawBefore) draw();
      // Ahead of the wait for a free stage, which hides the latency of the block table.
      const KvBox box = locate(k_len, kv_base, n);
      load_k(box, kv_head);
      if (pending_head_ >= 0) load_v(pending_, pending_head_);
      pending_ = box;
      pending_head_ = kv_head;
      if (n == look_ahead_at) look_ahead();
    }
    if (n_begin >= n_end) look_ahead();
  }

  /// Loads what is still missing after the last tile.
  __device__ __forceinline__ void finish() {
    if (pending_head_ >= 0) load_v(pending_, pending_head_);
  }

 private:
  static constexpr int kDrawBefore = 2;  ///< KV blocks between the draw of the next work and its use

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

  /// Fills this lane's part of `tile`, whose last readers have arrived at its barrier, and announces the tile
  /// on `full`: the whole of it counts, rows that come as zeros included. Bytes of other warps may arrive
  /// before they are announced; the phase cannot end before.
  __device__ __forceinline__ void copy(uint8_t* tile, const CUtensorMap& map, const KvRows& rows, int kv_head,
                                       const KvBox& box, hopper::Mbarrier& full) const {
    if (announces_) full.arrive_expecting(D::kKvBytes);
    __syncwarp();
    if (!issues_) return;
    uint8_t* destination = tile + chunk_ * D::kKvChunkBytes + first_row_ * hopper::kChunkBytes;
    const int32_t row = box.block * rows.block_rows + box.row;
    hopper::tma_load(destination, map,
                     {0, hopper::kRowBound - box.valid, kv_head * rows.head_chunks + chunk_, row + box.valid,
                      hopper::kRowBound},
                     full);
  }

  const CUtensorMap& map_k_;
  const CUtensorMap& map_v_;
  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const bool announces_;
  bool issues_;
  int first_row_;
  int chunk_;
  hopper::RingPlace<kKvStages> k_, v_;
  KvBox pending_{};  ///< V of the block before is still to be loaded
  int pending_head_ = -1;
};

/// The first producer warp, for the life of the block: takes work, loads Q, and its share of K and V.
template <Shape kShape>
__device__ __forceinline__ void produce(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                        const CUtensorMap& map_v, const KernelParams& p,
                                        SharedMemory<kShape>& smem, int lane) {
  using D = Derived<kShape>;
  KvLoader<kShape> loader(map_k, map_v, p, smem, 0, lane);
  hopper::RingPlace<kShape.q_stages> q;
  WorkSource<D::kLateDraw> source(p, lane);

  int32_t word;
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
    loader.load(
        n_begin, n_end, k_len, kv_base, kv_head, [&] { source.draw(); }, [&] { source.look_ahead(); });
  }
  loader.finish();

  smem.q_empty[q.stage()].wait(q.parity() ^ 1);
  if (lane == 0) {
    smem.item[q.stage()].head = -1;  // the end
    smem.q_full[q.stage()].arrive();
  }
}

/// The other producer warps: follow the work that the first one takes, and load their shares of K and V.
template <Shape kShape>
__device__ __forceinline__ void assist(const CUtensorMap& map_k, const CUtensorMap& map_v,
                                       const KernelParams& p, SharedMemory<kShape>& smem, int warp,
                                       int lane) {
  KvLoader<kShape> loader(map_k, map_v, p, smem, warp, lane);
  hopper::RingPlace<kShape.q_stages> q;
  while (true) {
    smem.q_full[q.stage()].wait(q.parity());
    const WorkItem item = smem.item[q.stage()];
    if (item.head < 0) break;
    __syncwarp();  // the other lanes' reads come before the arrival that stands for them
    if (lane == 0) smem.q_empty[q.stage()].arrive();
    q.advance();
    loader.load(
        item.n_begin, item.n_end, item.k_len, item.kv_base, item.head / p.head_tiles_per_kv_head, [] {},
        [] {});
  }
  loader.finish();
}

}  // namespace attnbench::sm90_prefill
