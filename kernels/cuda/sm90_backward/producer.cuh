// The warps that move data: one draws items and loads tiles, two add dq to the sums in global memory.
#pragma once

#include "kernels/cuda/common/last_arrival.cuh"
#include "kernels/cuda/common/tma.cuh"
#include "kernels/cuda/sm90_backward/shape.cuh"

namespace attnbench::sm90_backward {

/// Copies `bytes` contiguous bytes to shared memory. PTX ISA, "cp.async.bulk".
__device__ __forceinline__ void bulk_load(void* to, const void* from, uint32_t bytes,
                                          hopper::Mbarrier& done) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, to, from, bytes, &done.word);
}

template <Shape kShape>
class Producer {
  using D = Derived<kShape>;
  using Mbarrier = hopper::Mbarrier;

 public:
  __device__ __forceinline__ Producer(const Maps& maps, const KernelParams& p, SharedMemory<kShape>& smem)
      : maps_(maps), p_(p), smem_(smem) {}

  /// One lane calls it.
  __device__ __forceinline__ void run() {
    for (;; items_.advance()) {
      const uint32_t drawn = atomicAdd(&p_.head->drawn, 1u);
      const bool more = drawn < p_.head->items;
      const Work work = more ? p_.works[drawn] : Work{0, -1};
      smem_.item_ring.await_empty(items_);
      Keys& item = smem_.items[items_.stage()];
      if (more) item = p_.keys[work.keys];
      item.kv_head = work.kv_head;
      smem_.item_ring.full_at(items_).arrive();
      if (!more) break;
      if (item.tile_begin < item.tile_end) load(item);
    }
  }

 private:
  __device__ __forceinline__ static void load_rows(void* to, const CUtensorMap& map, int32_t chunk,
                                                   int32_t row, int32_t valid, Mbarrier& done) {
    hopper::tma_load<5>(to, map, {0, hopper::kRowBound - valid, chunk, row + valid, hopper::kRowBound}, done);
  }

  __device__ __forceinline__ void load(const Keys& item) {
    bool first = true;
    for (int tile = item.tile_end - 1; tile >= item.tile_begin; --tile) {
      for (int head = item.kv_head * p_.group; head < (item.kv_head + 1) * p_.group; ++head) {
        load_q(item, head, tile);
        if (first) load_keys(item, smem_.k_ring, k_, smem_.k, maps_.k, p_.k_head_chunks);
        load_d_out(item, head, tile);
        if (first) load_keys(item, smem_.v_ring, v_, smem_.v, maps_.v, p_.v_head_chunks);
        first = false;
      }
    }
  }

  __device__ __forceinline__ void load_keys(const Keys& item, hopper::Ring<1>& ring, hopper::RingPlace<1>& at,
                                            void* to, const CUtensorMap& map, int32_t head_chunks) {
    ring.await_empty(at);
    Mbarrier& full = ring.full_at(at);
    full.arrive_expecting(D::kKeyBytes);
    load_rows(to, map, item.kv_head * head_chunks, item.k_row + item.first_key,
              min(kBlockN, item.k_len - item.first_key), full);
    at.advance();
  }

  __device__ __forceinline__ int valid_rows(const Keys& item, int tile) const {
    return min(D::kM, item.q_len - tile * D::kM);
  }
  __device__ __forceinline__ int padded_row(const Keys& item, int head, int tile) const {
    return (head * p_.padded_tiles + item.tile_base + tile) * D::kM;
  }

  __device__ __forceinline__ void load_q(const Keys& item, int head, int tile) {
    smem_.q_ring.await_empty(q_);
    Mbarrier& full = smem_.q_ring.full_at(q_);
    full.arrive_expecting(D::kTileBytes + D::kRowBytes);
    load_rows(smem_.q[q_.stage()], maps_.q, head * p_.q_head_chunks, item.q_row + tile * D::kM,
              valid_rows(item, tile), full);
    bulk_load(smem_.lse2[q_.stage()], p_.lse2 + padded_row(item, head, tile), D::kRowBytes, full);
    q_.advance();
  }

  __device__ __forceinline__ void load_d_out(const Keys& item, int head, int tile) {
    smem_.d_out_ring.await_empty(d_out_);
    Mbarrier& full = smem_.d_out_ring.full_at(d_out_);
    full.arrive_expecting(D::kTileBytes + D::kRowBytes);
    load_rows(smem_.d_out[d_out_.stage()], maps_.d_out, head * p_.d_out_head_chunks,
              item.q_row + tile * D::kM, valid_rows(item, tile), full);
    bulk_load(smem_.delta[d_out_.stage()], p_.delta + padded_row(item, head, tile), D::kRowBytes, full);
    d_out_.advance();
  }

  const Maps& maps_;
  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  hopper::RingPlace<2> items_;
  hopper::RingPlace<1> k_, v_;
  hopper::RingPlace<kShape.q_stages> q_;
  hopper::RingPlace<kShape.d_out_stages> d_out_;
};

/// Adds one team's part of dq of each tile to the sums. With KernelParams::added, items add to a tile in ascending
/// order of their keys, so that sums have the same bits in each launch. The first one stores instead: sums need no
/// zeros. An item only waits for items that were drawn before it, so some block always moves on.
template <Shape kShape>
class Adder {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ Adder(const KernelParams& p, SharedMemory<kShape>& smem, int team)
      : p_(p), smem_(smem), team_(team) {}

  /// One lane calls it.
  __device__ __forceinline__ void run() {
    for (;; items_.advance()) {
      smem_.item_ring.await_full(items_);
      const Keys& item = smem_.items[items_.stage()];
      if (item.kv_head < 0) break;
      for (int tile = item.tile_end - 1; tile >= item.tile_begin; --tile) {
        for (int head = item.kv_head * p_.group; head < (item.kv_head + 1) * p_.group; ++head)
          add(item, head, tile);
      }
      smem_.item_ring.empty[items_.stage()].arrive();
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }

 private:
  /// How many items add to the tile before this one.
  __device__ __forceinline__ uint32_t items_before(const Keys& item, int tile) const {
    const int first_seen = max(0, tile * D::kM + item.diagonal - p_.reach_left);
    return item.first_key / kBlockN - first_seen / kBlockN;
  }

  __device__ __forceinline__ void add(const Keys& item, int head, int tile) {
    float* to = dq_part<kShape>(p_, head, item.tile_base + tile, team_);
    const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(smem_.dq[team_]));
    uint32_t* added = nullptr;
    uint32_t before = 1;
    if (p_.added != nullptr) {
      added =
          p_.added + ((team_ * p_.attention.num_heads_q + head) * p_.padded_tiles + item.tile_base + tile);
      before = items_before(item, tile);
      if (before > 0) hopper::await_arrivals(added, before);
      asm volatile("fence.proxy.async.global;" ::: "memory");
    }
    smem_.dq_ring[team_].await_full(dq_);
    if (before == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                   "n"(D::kPartBytes)
                   : "memory");
    } else {
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                   "r"(from), "n"(D::kPartBytes)
                   : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    smem_.dq_ring[team_].empty[0].arrive();
    dq_.advance();
    if (added == nullptr) return;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.global;" ::: "memory");
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(added) : "memory");
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int team_;
  hopper::RingPlace<2> items_;
  hopper::RingPlace<1> dq_;
};

}  // namespace attnbench::sm90_backward
