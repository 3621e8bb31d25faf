// The consumers of a block: two teams of four warps. The teams take tiles in turns: one computes the scores and
// weights of a tile, and hands the weights to the other. Each adds the products of all tiles with its half of the
// channels of V.
#pragma once

#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

template <Shape kShape>
class Consumer {
  static constexpr DType kType = kShape.dtype;
  static constexpr int kScores = kTileKeys / 2;  ///< of a lane
  static constexpr int kSteps = kTileKeys / 16;  ///< steps of 16 keys of a product with values
  static constexpr int kFirstSteps = 2;          ///< whose weights are handed over first
  static constexpr int kTeamChannels = kValueChannels / kTeams;  ///< of O

 public:
  __device__ __forceinline__ Consumer(const KernelParams& p, SharedMemory<kShape>& smem,
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

  /// Team 0 computes the weights of the first tile, team 1 those of the second, and so on. The team that takes them over
  /// issues its products with values first, because the next scores are its own. The other team's products then run
  /// beside these.
  __device__ __forceinline__ void add_tiles(int begin, int end) {
    if (begin + team_ >= end) smem_.q_ring.release(q_, lane_);  // none is this team's
#pragma unroll 1
    for (int tile = begin; tile < end; ++tile, kv_.advance()) {
      const bool is_own = (tile - begin) % kTeams == team_;
      // The first keys' weights are handed over while those of the others are computed.
      Weights first[kFirstSteps], others[kSteps - kFirstSteps];
      float s[kScores], shrink[2];
      if (is_own) {
        multiply_keys(s);
        if (tile + kTeams >= end) smem_.q_ring.release(q_, lane_);
        rows_.hide(s, tile * kTileKeys);
        rows_.lower(s, p_.score_factor, shrink);
        leave_state(shrink);
        weigh<0>(s, first);
      }
      pair_meets();
      if (!is_own) {
        take_state(shrink);
        take_weights(smem_.exchange.weights, place_in_team(), first);
      }
      rescale(o_, shrink);
      // The branch of this wait also keeps ptxas from computing the other weights ahead of the barrier.
      smem_.kv_ring.parts[team_].await_full(kv_);
      if (is_own) {
        weigh<kFirstSteps>(s, others);
      } else {
        add_values<0>(first);
      }
      pair_meets();
      if (is_own) {
        smem_.values_issued[warp_].wait(kv_.count % 2);
        add_values<0>(first);
        add_values<kFirstSteps>(others);
        end_values(first, others);
      } else {
        take_weights(smem_.exchange.weights + kFirstSteps, place_in_team(), others);
        add_values<kFirstSteps>(others);
        if (lane_ == 0) smem_.values_issued[warp_].arrive();
        end_values(first, others);
      }
    }
  }

  /// s = Q K^T for the keys of the tile at kv_.
  __device__ __forceinline__ void multiply_keys(float (&s)[kScores]) {
    multiply_part<part_chunks(kRest)>(s, kRest);
    multiply_part<kHalfChunks>(s, team_);
    multiply_part<kHalfChunks>(s, 1 - team_);
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(s);
    smem_.kv_ring.parts[kRest].release(kv_, lane_);
  }

  /// Adds the products of kPartChunks chunks, which are part `part`. The rest comes first, and ignores what s held.
  template <int kPartChunks>
  __device__ __forceinline__ void multiply_part(float (&s)[kScores], int part) {
    const hopper::SwizzledTile<> q(smem_.q + part * kHalfChunks * kShape.q_chunk_bytes(), 0);
    const hopper::SwizzledTile<kPartChunks * kChunkStep> keys(smem_.kv[kv_.stage()] + part_offset(part), 0);
    smem_.kv_ring.parts[part].await_full(kv_);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4 * kPartChunks; ++k) {
      const uint32_t chunk = k / 4, inside = k % 4 * 32;
      hopper::Wgmma<kTileKeys>::template from_shared<kType>(s, q.at(chunk * kShape.q_chunk_bytes() + inside),
                                                            keys.at(chunk * kChunkStep + inside),
                                                            kPartChunks == kHalfChunks || k > 0);
    }
  }

  /// o += P V for the keys of kCount steps from kFrom on, and this team's half of the channels.
  template <int kFrom, int kCount>
  __device__ __forceinline__ void add_values(const Weights (&weights)[kCount]) {
    constexpr int kGroupBytes = part_group_bytes(0);
    const hopper::SwizzledTile<kGroupBytes> values(smem_.kv[kv_.stage()] + part_offset(team_), kChunkStep);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kCount; ++step) {
      hopper::Wgmma<kTeamChannels>::template from_registers<kType>(
          o_, weights[step], values.at((kFrom + step) * 2 * kGroupBytes), 1);
    }
    hopper::wgmma_commit();
  }

  /// Waits for the products with a tile's values, and releases these.
  __device__ __forceinline__ void end_values(Weights (&first)[kFirstSteps],
                                             Weights (&others)[kSteps - kFirstSteps]) {
    hopper::wgmma_wait<0>();
    hopper::pin(o_);
    hopper::pin(first);
    hopper::pin(others);
    smem_.kv_ring.parts[team_].release(kv_, lane_);
  }

  /// Turns the scores of kCount steps from kFrom on into weights, and leaves them for the other team.
  template <int kFrom, int kCount>
  __device__ __forceinline__ void weigh(const float (&s)[kScores], Weights (&weights)[kCount]) {
    float w[8 * kCount];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float offset = rows_.usable_offset(h);
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < 2 * kCount; ++j) {
#pragma unroll
        for (int i = 4 * j + 2 * h; i < 4 * j + 2 * h + 2; ++i) {
          w[i] = hopper::exp2_approx(fmaf(s[8 * kFrom + i], p_.score_factor, offset));
          sum += w[i];
        }
      }
      rows_.sum[h] += sum;
    }
    pack_weights<kType>(w, weights);
    leave_weights(smem_.exchange.weights + kFrom, place_in_team(), weights);
  }

  __device__ __forceinline__ int place_in_team() const { return warp_ * 32 + lane_; }

  /// Leaves the offsets of a lane's rows, and the factors for older weights, for the other team.
  __device__ __forceinline__ void leave_state(const float (&shrink)[2]) {
    if (lane_ % 4 != 0) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      smem_.exchange.state[rows_.first + 8 * h] = make_float2(rows_.offset[h], shrink[h]);
    }
  }

  __device__ __forceinline__ void take_state(float (&shrink)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 state = smem_.exchange.state[rows_.first + 8 * h];
      shrink[h] = state.y;
      rows_.take(h, state.x, shrink[h]);
    }
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
