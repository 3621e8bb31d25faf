// The consumers of a block that works alone, with up to 64 query rows: two teams of four warps. Each team
// computes the scores of its half of a tile, and its half of the channels of O.
#pragma once

#include "kernels/cuda/sm90_mla/products.cuh"
#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

template <Shape kShape>
class TeamConsumer {
  static constexpr DType kType = kShape.dtype;
  static constexpr int kDepth = kKeyChannels / 16;        ///< steps of 16 channels of a product with keys
  static constexpr int kSteps = kShape.slot_keys() / 16;  ///< steps of 16 keys of a product with values
  static constexpr int kTeamChannels = kValueChannels / kTeams;  ///< of O

 public:
  __device__ __forceinline__ TeamConsumer(const KernelParams& p, SharedMemory<kShape>& smem,
                                          const Place<kShape>& place)
      : p_(p), smem_(smem), place_(place), lane_(threadIdx.x % 32) {
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the same in all lanes
    team_ = warp / 4;
    warp_ = warp % 4;
  }

  __device__ __forceinline__ void run() {
    for (;; q_.advance()) {
      smem_.q_ring.await_full(q_);
      const Item item = smem_.item;
      if (item.num_splits == 0) return;
      rows_.begin(p_, place_, item, warp_ * 16 + lane_ / 4);
#pragma unroll
      for (float& o : o_) o = 0.0f;
      for (int tile = item.tile_begin; tile < item.tile_end; ++tile)
        add_tile(tile, tile + 1 == item.tile_end);
      if (item.tile_begin >= item.tile_end) smem_.q_ring.release(q_, lane_);
      finish(item);
    }
  }

 private:
  __device__ __forceinline__ void pair_meets() const { hopper::named_barrier_sync(kPairBarrier + warp_, 64); }

  __device__ __forceinline__ void add_tile(int tile, bool is_last) {
    hopper::RingPlace<kShape.slots> own = kv_, others = kv_;
    own.count += team_;
    others.count += 1 - team_;
    kv_.count += kTeams;

    float s[16];
    smem_.kv_ring.await_full(own);
    multiply_keys(s, own);
    if (is_last) smem_.q_ring.release(q_, lane_);

    uint32_t weights[kSteps][4], other_weights[kSteps][4];
    weigh(s, tile * kTileKeys + team_ * kShape.slot_keys(), weights);
    leave_weights(smem_.exchange.weights[team_], warp_ * 32 + lane_, weights);

    add_values(weights, own);
    pair_meets();  // the other's weights are there
    take_weights(smem_.exchange.weights[1 - team_], warp_ * 32 + lane_, other_weights);
    smem_.kv_ring.await_full(others);
    add_values(other_weights, others);
    hopper::wgmma_wait<0>();
    hopper::pin(o_);
    hopper::pin(weights);
    hopper::pin(other_weights);
    smem_.kv_ring.release(own, lane_);
    smem_.kv_ring.release(others, lane_);
  }

  /// s = Q K^T for the 32 keys of a slot.
  __device__ __forceinline__ void multiply_keys(float (&s)[16],
                                                const hopper::RingPlace<kShape.slots>& place) {
    const hopper::SwizzledTile<> q(smem_.q, 0);
    const hopper::SwizzledTile<kShape.group_bytes()> keys(smem_.kv[place.stage()], 0);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const uint32_t chunk = k / 4, inside = k % 4 * 32;
      wgmma_m64n32<kType>(s, q.at(chunk * kShape.q_chunk_bytes() + inside),
                          keys.at(chunk * kChunkStep + inside), k > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(s);
  }

  /// o += P V for the keys of a slot.
  __device__ __forceinline__ void add_values(const uint32_t (&weights)[kSteps][4],
                                             const hopper::RingPlace<kShape.slots>& place) {
    const hopper::SwizzledTile<kShape.group_bytes()> values(smem_.kv[place.stage()], kChunkStep);
    const uint32_t first = team_ * (kTeamChannels / hopper::kChunkChannels) * kChunkStep;
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      hopper::Wgmma<kTeamChannels>::template from_registers<kType>(
          o_, weights[step], values.at(first + step * 2 * kShape.group_bytes()), 1);
    }
    hopper::wgmma_commit();
  }

  /// Turns scores of keys first, first + 1, ... into weights, relative to the greatest score of both teams.
  __device__ __forceinline__ void weigh(float (&s)[16], int first, uint32_t (&weights)[kSteps][4]) {
    rows_.hide(s, first);
    float top[2], shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = LaneRows::greatest(s, h);
      if (lane_ % 4 == 0) smem_.exchange.max[team_][rows_.first + 8 * h] = top[h];
    }
    pair_meets();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float both = fmaxf(top[h], smem_.exchange.max[1 - team_][rows_.first + 8 * h]);
      shrink[h] = rows_.weigh(s, h, both, p_.score_factor);
    }
    pack_weights<kType>(s, weights);
    rescale(o_, shrink);
  }

  __device__ __forceinline__ void finish(const Item& item) {
    float sum[2];
    sums_of_teams(
        smem_.exchange.sum, rows_, team_, [this] { pair_meets(); }, sum);
    write_item(p_, place_, item, rows_, sum, o_, team_ * kTeamChannels);
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const Place<kShape>& place_;
  const int lane_;
  int team_, warp_;
  hopper::RingPlace<1> q_;
  hopper::RingPlace<kShape.slots> kv_;

  LaneRows rows_;
  float o_[kTeamChannels / 2];
};

}  // namespace attnbench::sm90_mla
