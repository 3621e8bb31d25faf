// The consumers of a block that works in a pair, with up to 128 query rows. Each block of the pair reads its
// half of the channels of K, and computes its half of the channels of O. It computes its half of the sum over
// channels in each score, and gets the other half from the other block. Each of its two teams of four warps
// has 64 of the rows.
#pragma once

#include "kernels/cuda/sm90_mla/products.cuh"
#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

template <Shape kShape>
class PairConsumer {
  static constexpr DType kType = kShape.dtype;
  static constexpr int kScores = kTileKeys / 2;  ///< of a lane
  static constexpr int kSteps = kTileKeys / 16;  ///< steps of 16 keys of a product with values
  static constexpr int kChannels = kShape.block_channels();
  static constexpr uint32_t kChunkStep = hopper::kGroupRows * hopper::kChunkBytes;

 public:
  __device__ __forceinline__ PairConsumer(const KernelParams& p, SharedMemory<kShape>& smem,
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
      if (item.num_splits == 0) break;
      rows_.begin(p_, place_, item, team_ * kProductRows + warp_ * 16 + lane_ / 4);
#pragma unroll
      for (float& o : o_) o = 0.0f;
      if (item.tile_begin < item.tile_end) {
        add_tiles(item.tile_begin, item.tile_end);
      } else {
        smem_.q_ring.release(q_, lane_);
      }
      finish(item);
    }
    // A block's shared memory must outlive the other's last arrival. Nothing else from there is under way.
    await_taken();
  }

 private:
  __device__ __forceinline__ void add_tiles(int begin, int end) {
    float s[kScores];
    smem_.kv_ring.await_full(kv_);
    multiply_keys(s, kv_);
    hopper::wgmma_wait<0>();
    hopper::pin(s);
    send(s);
#pragma unroll 1
    for (int tile = begin; tile + 1 < end; ++tile) add_tile<true>(s, tile);
    smem_.q_ring.release(q_, lane_);
    add_tile<false>(s, end - 1);
  }

  /// Adds the tile whose half scores are in `s`, and computes those of the next one meanwhile.
  template <bool kHasNext>
  __device__ __forceinline__ void add_tile(float (&s)[kScores], int tile) {
    float next[kScores];
    hopper::RingPlace<kShape.slots> next_kv = kv_;
    next_kv.advance();
    receive(s);
    if constexpr (kHasNext) {
      smem_.kv_ring.await_full(next_kv);
      multiply_keys(next, next_kv);
    }
    rows_.hide(s, tile * kTileKeys);
    float shrink[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) shrink[h] = rows_.weigh(s, h, LaneRows::greatest(s, h), p_.score_factor);
    uint32_t weights[kSteps][4];
    pack_weights<kType>(s, weights);
    rescale(o_, shrink);
    add_values(weights, kv_);
    if constexpr (kHasNext) {
      hopper::wgmma_wait<1>();  // the scores
      hopper::pin(next);
      send(next);
    }
    hopper::wgmma_wait<0>();
    hopper::pin(o_);
    hopper::pin(weights);
    smem_.kv_ring.release(kv_, lane_);
    kv_ = next_kv;
    if constexpr (kHasNext) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) s[i] = next[i];
    }
  }

  /// Begins s = Q K^T, over this block's channels, for the team's rows and the keys of a slot.
  __device__ __forceinline__ void multiply_keys(float (&s)[kScores],
                                                const hopper::RingPlace<kShape.slots>& place) {
    constexpr int kRopeAtom = hopper::kGroupRows * kRopeBytes;
    const uint8_t* slot = smem_.kv[place.stage()];
    const hopper::SwizzledTile<> q(smem_.q + team_ * kProductRows * hopper::kChunkBytes, 0);
    const hopper::SwizzledTile<kShape.group_bytes()> keys(slot, 0);
    const hopper::SwizzledTile<kRopeAtom, kRopeBytes> q_rope(
        smem_.q + kShape.q_rope_offset() + team_ * kProductRows * kRopeBytes, 0);
    const hopper::SwizzledTile<kRopeAtom, kRopeBytes> rope_keys(slot + kShape.rope_offset(), 0);
    hopper::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kChannels / 16; ++k) {
      const uint32_t chunk = k / 4, inside = k % 4 * 32;
      hopper::Wgmma<kTileKeys>::template from_shared<kType>(s, q.at(chunk * kShape.q_chunk_bytes() + inside),
                                                            keys.at(chunk * kChunkStep + inside), k > 0);
    }
#pragma unroll
    for (int k = 0; k < kRopeBytes / 32; ++k) {
      hopper::Wgmma<kTileKeys>::template from_shared<kType>(s, q_rope.at(k * 32), rope_keys.at(k * 32), 1);
    }
    hopper::wgmma_commit();
  }

  /// Begins o += P V for the keys of a slot.
  __device__ __forceinline__ void add_values(const uint32_t (&weights)[kSteps][4],
                                             const hopper::RingPlace<kShape.slots>& place) {
    const hopper::SwizzledTile<kShape.group_bytes()> values(smem_.kv[place.stage()], kChunkStep);
    hopper::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      hopper::Wgmma<kChannels>::template from_registers<kType>(o_, weights[step],
                                                               values.at(step * 2 * kShape.group_bytes()), 1);
    }
    hopper::wgmma_commit();
  }

  /// Waits until the other block has read what was sent last. A fresh barrier counts as read.
  __device__ __forceinline__ void await_taken() { await_cluster(smem_.exchange.taken[team_], sent_ % 2 ^ 1); }

  /// Sends half scores to the other block's team with the same rows.
  __device__ __forceinline__ void send(const float (&s)[kScores]) {
    auto& pair = smem_.exchange;
    await_taken();
    ++sent_;
    const uint32_t other = place_.rank ^ 1;
    const uint32_t full = address_in_cluster(&pair.full[team_], other);
    const uint32_t scores = address_in_cluster(&pair.scores[team_][0][warp_ * 32 + lane_], other);
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      store_in_cluster(scores + i * sizeof(pair.scores[team_][0]), &s[4 * i], full);
    }
  }

  /// Adds the other block's half scores.
  __device__ __forceinline__ void receive(float (&s)[kScores]) {
    auto& pair = smem_.exchange;
    await_cluster(pair.full[team_], received_ % 2);
    ++received_;
    if (warp_ == 0 && lane_ == 0) pair.full[team_].arrive_expecting(sizeof(pair.scores[team_]));
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
      const float4 half = pair.scores[team_][i][warp_ * 32 + lane_];
      s[4 * i] += half.x;
      s[4 * i + 1] += half.y;
      s[4 * i + 2] += half.z;
      s[4 * i + 3] += half.w;
    }
    __syncwarp();  // the other lanes' reads come before the arrival that stands for them
    if (lane_ == 0) arrive_in_cluster(address_in_cluster(&pair.taken[team_], place_.rank ^ 1));
  }

  __device__ __forceinline__ void finish(const Item& item) {
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      sum[h] = hopper::quad_reduce(rows_.sum[h], [](float a, float b) { return a + b; });
    write_item(p_, place_, item, rows_, sum, o_, 0);
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const Place<kShape>& place_;
  const int lane_;
  int team_, warp_;
  hopper::RingPlace<1> q_;
  hopper::RingPlace<kShape.slots> kv_;
  uint32_t sent_ = 0, received_ = 0;  ///< tiles

  LaneRows rows_;
  float o_[kChannels / 2];
};

}  // namespace attnbench::sm90_mla
