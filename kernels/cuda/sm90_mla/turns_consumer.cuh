// The consumers of a block whose row tile is one of several: two teams of four warps. The teams take tiles in
// turns: one computes the scores and weights of a tile, while the other adds values of the tile before it. Each
// hands its weights to the other, and adds the products of all tiles with its half of the channels of V.
#pragma once

#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

template <Shape kShape>
class TurnsConsumer {
  static constexpr DType kType = kShape.dtype;
  static constexpr int kScores = kTileKeys / 2;  ///< of a lane
  static constexpr int kSteps = kTileKeys / 16;  ///< steps of 16 keys of a product with values
  static constexpr int kTeamChannels = kValueChannels / kTeams;  ///< of O

 public:
  __device__ __forceinline__ TurnsConsumer(const KernelParams& p, SharedMemory<kShape>& smem,
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
      add_tiles(item.tile_begin, item.tile_end);
      finish(item);
    }
  }

 private:
  __device__ __forceinline__ void pair_meets() const { hopper::named_barrier_sync(kPairBarrier + warp_, 64); }

  /// Team 0 computes the weights of the first tile, team 1 those of the second, and so on.
  __device__ __forceinline__ void add_tiles(int begin, int end) {
    if (begin + team_ >= end) smem_.q_ring.release(q_, lane_);  // none is this team's
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile, kv_.advance()) {
      const bool is_own = (tile - begin) % kTeams == team_;
      uint32_t weights[kSteps][4];
      float shrink[2];
      if (is_own) {
        float s[kScores];
        multiply_keys(s);
        if (tile + kTeams >= end) smem_.q_ring.release(q_, lane_);
        weigh(s, tile, weights, shrink);
        hand_over(weights);
      }
      pair_meets();
      if (!is_own) take_over(weights, shrink);
      add_values(weights, shrink);
    }
  }

  /// s = Q K^T for the keys of the tile at kv_.
  __device__ __forceinline__ void multiply_keys(float (&s)[kScores]) {
    const hopper::SwizzledTile<> q(smem_.q, 0);
    multiply_part<0>(s, q);
    multiply_part<1>(s, q);
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(s);
  }

  template <int kPart>
  __device__ __forceinline__ void multiply_part(float (&s)[kScores], const hopper::SwizzledTile<>& q) {
    const hopper::SwizzledTile<part_group_bytes(kPart)> keys(smem_.kv[kv_.stage()] + part_offset(kPart), 0);
    smem_.kv_ring.parts[kPart].await_full(kv_);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4 * part_chunks(kPart); ++k) {
      const uint32_t chunk = k / 4, inside = k % 4 * 32;
      hopper::Wgmma<kTileKeys>::template from_shared<kType>(
          s, q.at((kPart * part_chunks(0) + chunk) * kShape.q_chunk_bytes() + inside),
          keys.at(chunk * kChunkStep + inside), kPart + k > 0);
    }
  }

  /// o = o * shrink + P V for these keys and this team's half of the channels, which is released.
  __device__ __forceinline__ void add_values(uint32_t (&weights)[kSteps][4], const float (&shrink)[2]) {
    rescale(o_, shrink);
    smem_.kv_ring.parts[team_].await_full(kv_);
    if (team_ == 0) {
      add_part<0>(weights);
    } else {
      add_part<1>(weights);
    }
    hopper::wgmma_wait<0>();
    hopper::pin(o_);
    hopper::pin(weights);
    smem_.kv_ring.parts[team_].release(kv_, lane_);
  }

  template <int kPart>
  __device__ __forceinline__ void add_part(const uint32_t (&weights)[kSteps][4]) {
    constexpr int kGroupBytes = part_group_bytes(kPart);
    const hopper::SwizzledTile<kGroupBytes> values(smem_.kv[kv_.stage()] + part_offset(kPart), kChunkStep);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      hopper::Wgmma<kTeamChannels>::template from_registers<kType>(o_, weights[step],
                                                                   values.at(step * 2 * kGroupBytes), 1);
    }
    hopper::wgmma_commit();
  }

  /// Turns a tile's scores into weights. `shrink`: the factor for older weights.
  __device__ __forceinline__ void weigh(float (&s)[kScores], int tile, uint32_t (&weights)[kSteps][4],
                                        float (&shrink)[2]) {
    rows_.hide(s, tile * kTileKeys);
#pragma unroll
    for (int h = 0; h < 2; ++h) shrink[h] = rows_.weigh(s, h, LaneRows::greatest(s, h), p_.score_factor);
    pack_weights<kType>(s, weights);
  }

  /// Leaves weights, and the scores that they are relative to, for the other team's warp with the same rows.
  /// Each lane reads and writes the same place in both teams, so program order protects it.
  __device__ __forceinline__ void hand_over(const uint32_t (&weights)[kSteps][4]) {
    leave_weights(smem_.exchange.weights, warp_ * 32 + lane_, weights);
    smem_.exchange.max[warp_ * 32 + lane_] = make_float2(rows_.max[0], rows_.max[1]);
  }

  /// Takes the other team's weights. `shrink`: the factor for older weights.
  __device__ __forceinline__ void take_over(uint32_t (&weights)[kSteps][4], float (&shrink)[2]) {
    take_weights(smem_.exchange.weights, warp_ * 32 + lane_, weights);
    const float2 max = smem_.exchange.max[warp_ * 32 + lane_];
    shrink[0] = rows_.raise(0, max.x, p_.score_factor);
    shrink[1] = rows_.raise(1, max.y, p_.score_factor);
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
