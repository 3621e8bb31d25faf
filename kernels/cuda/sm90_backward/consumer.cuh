// The consumers of a block: two teams of four warps. A team has 64 of an item's keys, and sums their dk and dv in
// registers over all tiles. Of each tile's dq it computes one part, from the dS of both teams.
#pragma once

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/quad.cuh"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/common/score.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_backward/shape.cuh"

namespace attnbench::sm90_backward {

/// Scores, P, dP and dS of a team are transposed: rows are its 64 keys, columns are the queries of a tile. So P and dS,
/// rounded in pairs, are the A operands of dv += P^T dO and dk += dS^T q.
template <Shape kShape>
class Consumer {
  using D = Derived<kShape>;
  static constexpr DType kType = kShape.dtype;
  static constexpr int kM = D::kM;
  static constexpr int kD = D::kD;
  static constexpr int kSteps = kM / 16;  ///< steps of 16 queries of a product with dO or q
  using Grads = hopper::Wgmma<kD>;
  using TilePlace = hopper::RingPlace<kShape.q_stages>;

 public:
  __device__ __forceinline__ Consumer(const KernelParams& p, SharedMemory<kShape>& smem, int team)
      : p_(p), smem_(smem), team_(team) {}

  __device__ __forceinline__ void run() {
    for (;; items_.advance()) {
      smem_.item_ring.await_full(items_);
      if (item().kv_head < 0) return;
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) dk_[i] = dv_[i] = 0.0f;
      const int tiles = __shfl_sync(~0u, item().tile_end - item().tile_begin, 0);
      if (tiles > 0) sum(tiles * p_.group);
      store(dk_, p_.attention.dk, p_.attention.dk_stride_token, p_.attention.dk_stride_head,
            p_.attention.softmax_scale);
      store(dv_, p_.attention.dv, p_.attention.dv_stride_token, p_.attention.dv_stride_head, 1.0f);
      smem_.item_ring.release(items_, lane());
    }
  }

 private:
  /// Registers are short: these are read anew where they are needed.
  __device__ __forceinline__ static int lane() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int warp() { return threadIdx.x / 32 % 4; }
  __device__ __forceinline__ const Keys& item() const { return smem_.items[items_.stage()]; }
  /// The current tile's place in the ring of dO, and a tile's buffer of dS.
  __device__ __forceinline__ auto d_out_place() const {
    return hopper::RingPlace<kShape.d_out_stages>{tiles_.count};
  }
  __device__ __forceinline__ static auto ds_place(const TilePlace& tile) {
    return hopper::RingPlace<2>{tile.count};
  }

  /// Waits for the dS of both teams. A team leaves dS in a buffer again two tiles later. By then it has seen the other
  /// team's dS of the tile in between, which that team leaves when its products with this buffer are done.
  __device__ __forceinline__ void await_ds(const TilePlace& tile) {
    smem_.ds_full[ds_place(tile).stage()].wait(ds_place(tile).parity());
  }

  /// Adds the products of all tiles and heads. A step issues the scores of its tile ahead of the last products of
  /// the one before, so that its arithmetic runs beside these. Groups of products complete in order. Registers are
  /// short: arrays live as shortly as they can.
  __device__ __forceinline__ void sum(int steps) {
    int tile = item().tile_end - 1, head = 0;
    smem_.k_ring.await_full(keys_);
    smem_.q_ring.await_full(tiles_);
    {
      float s[kM / 2], dp[32];
      multiply_rows<kM>(s, smem_.k, smem_.q[tiles_.stage()]);
      smem_.v_ring.await_full(keys_);
      smem_.d_out_ring.await_full(d_out_place());
      multiply_rows<64>(dp, smem_.v, smem_.d_out[d_out_place().stage()]);
      hopper::wgmma_wait<1>();
      hopper::pin(s);
      find_ds(s, dp, tile * kM, [] {});
    }
#pragma unroll 1
    for (int step = 1; step < steps; ++step) {
      float s[kM / 2], dp[32], dq[32];
      const auto before = tiles_;
      smem_.d_out_ring.release(d_out_place(), lane());
      tiles_.advance();
      smem_.q_ring.await_full(tiles_);
      multiply_rows<kM>(s, smem_.k, smem_.q[tiles_.stage()]);
      await_ds(before);
      multiply_ds(dq, before);
      add_keys(before);
      if (++head == p_.group) {
        head = 0;
        --tile;
      }
      hopper::wgmma_wait<1>();
      hopper::pin(s);
      hopper::pin(dq);
      hand_over(dq, before);
      smem_.d_out_ring.await_full(d_out_place());
      multiply_rows<64>(dp, smem_.v, smem_.d_out[d_out_place().stage()]);
      find_ds(s, dp, tile * kM, [&] {
        hopper::wgmma_wait<1>();
        hopper::pin(dk_);
        smem_.q_ring.release(before, lane());
      });
    }
    smem_.v_ring.release(keys_, lane());
    float dq[32];
    await_ds(tiles_);
    multiply_ds(dq, tiles_);
    add_keys(tiles_);
    hopper::wgmma_wait<0>();
    hopper::pin(dk_);
    hopper::pin(dq);
    smem_.k_ring.release(keys_, lane());
    smem_.q_ring.release(tiles_, lane());
    smem_.d_out_ring.release(d_out_place(), lane());
    hand_over(dq, tiles_);
    keys_.advance();
    tiles_.advance();
  }

  /// Computes P from the scores, adds P^T dO to dv, and leaves dS. dP of the first 64 queries is in flight; `then` is
  /// called when P is there.
  template <class Then>
  __device__ __forceinline__ void find_ds(float (&s)[kM / 2], float (&dp)[32], int row0, Then then) {
    uint32_t weights[kSteps][4];
    weigh(s, weights, row0);
    then();
    const uint8_t* d_out = smem_.d_out[d_out_place().stage()];
    add_rows(dv_, weights, d_out);
    hopper::wgmma_wait<kM == 64 ? 0 : 1>();
    hopper::pin(dp);
    if constexpr (kM == 64) {
      hopper::pin(dv_);
      hopper::pin(weights);
      leave_ds<0>(s, dp);
    } else {
      leave_ds<0>(s, dp);
      float others[32];
      multiply_rows<64>(others, smem_.v, d_out + 64 * hopper::kChunkBytes);
      hopper::wgmma_wait<0>();
      hopper::pin(dv_);
      hopper::pin(weights);
      hopper::pin(others);
      leave_ds<1>(s, others);
    }
    hopper::fence_for_wgmma();
    __syncwarp();
    if (lane() == 0) smem_.ds_full[ds_place(tiles_).stage()].arrive();
  }

  /// s = keys rows^T, of the team's keys: K q^T or V dO^T.
  template <int kRows>
  __device__ __forceinline__ void multiply_rows(float (&s)[kRows / 2], const uint8_t* keys,
                                                const uint8_t* rows) {
    const hopper::SwizzledTile<> a(keys + team_ * (64 * hopper::kChunkBytes), 0), b(rows, 0);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kD / 16; ++i) {
      const uint32_t chunk = i / 4, inside = i % 4 * 32;
      hopper::Wgmma<kRows>::template from_shared<kType>(s, a.at(chunk * D::kKeyChunkBytes + inside),
                                                        b.at(chunk * D::kTileChunkBytes + inside), i > 0);
    }
    hopper::wgmma_commit();
  }

  /// sums += W^T rows, for the team's keys: W is P or dS, rows are dO or q.
  __device__ __forceinline__ void add_rows(float (&sums)[kD / 2], const uint32_t (&w)[kSteps][4],
                                           const uint8_t* rows) {
    const hopper::SwizzledTile<> b(rows, D::kTileChunkBytes);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i) Grads::template from_registers<kType>(sums, w[i], b.at(i * 2048), 1);
    hopper::wgmma_commit();
  }

  /// dk += dS^T q of a tile.
  __device__ __forceinline__ void add_keys(const TilePlace& tile) {
    const hopper::SwizzledTile<> a(smem_.ds[ds_place(tile).stage()] + team_ * (64 * hopper::kChunkBytes), 0);
    const hopper::SwizzledTile<> b(smem_.q[tile.stage()], D::kTileChunkBytes);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSteps; ++i)
      Grads::template from_shared_transposed<kType, false>(dk_, a.at(i / 4 * D::kKeyChunkBytes + i % 4 * 32),
                                                           b.at(i * 2048), 1);
    hopper::wgmma_commit();
  }

  /// dq = dS K of a tile, the team's part: 64 queries and 64 channels.
  __device__ __forceinline__ void multiply_ds(float (&dq)[32], const TilePlace& tile) {
    const uint8_t* ds = smem_.ds[ds_place(tile).stage()];
    const hopper::SwizzledTile<> a(ds + (D::kRowTiles > 1 ? team_ * D::kKeyChunkBytes : 0), 0);
    const hopper::SwizzledTile<> b(smem_.k + (D::kChunks > 1 ? team_ * D::kKeyChunkBytes : 0), 0);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kBlockN / 16; ++i)
      hopper::Wgmma<64>::template from_shared_transposed<kType, true>(dq, a.at(i * 2048), b.at(i * 2048),
                                                                      i > 0);
    hopper::wgmma_commit();
  }

  /// Turns scores into P, and leaves in s what dP - delta is multiplied with: P, or with a softcap P (1 - tanh^2).
  /// row0: of the tile, in its sequence.
  __device__ __forceinline__ void weigh(float (&s)[kM / 2], uint32_t (&weights)[kSteps][4], int row0) {
    // The queries that see all keys of the team.
    const int first = item().first_key + team_ * 64;
    const int from = first + 63 - item().diagonal - p_.reach_right;
    const int until = first + 1 - item().diagonal + p_.reach_left;
    const bool whole = first + 64 <= item().k_len && row0 >= from && row0 + kM <= until;
    if (__shfl_sync(~0u, whole, 0)) {
      weigh_seen<false>(s, weights, row0);
    } else {
      weigh_seen<true>(s, weights, row0);
    }
  }

  template <bool kMasked>
  __device__ __forceinline__ void weigh_seen(float (&s)[kM / 2], uint32_t (&weights)[kSteps][4], int row0) {
    const float* lse2 = smem_.lse2[tiles_.stage()] + lane() % 4 * 2;
    int from[2], until[2];  // the queries that see a key of the thread
    if constexpr (kMasked) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int key = item().first_key + team_ * 64 + warp() * 16 + lane() / 4 + 8 * h;
        const int shift = key - item().diagonal - row0 - lane() % 4 * 2;
        from[h] = key < item().k_len ? shift - p_.reach_right : kM;
        until[h] = shift + p_.reach_left + 1;
      }
    }
    if constexpr (kShape.softcap) hopper::apply_tanh(s, p_.score_factor);
    const float factor = kShape.softcap ? p_.cap_factor : p_.score_factor;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(lse2 + 8 * j);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float w[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = s[4 * j + 2 * h + c];
          w[c] = hopper::exp2_approx(fmaf(x, factor, c == 0 ? -l.x : -l.y));
          if constexpr (kMasked) {
            const int column = 8 * j + c;
            if (column < from[h] || column >= until[h]) w[c] = 0.0f;
          }
          x = kShape.softcap ? w[c] * fmaf(-x, x, 1.0f) : w[c];
        }
        weights[j / 2][j % 2 * 2 + h] = hopper::pack_pair<kType>(w[0], w[1]);
      }
    }
  }

  /// Leaves dS = P (dP - delta) of 64 queries, rounded, in shared memory, where both teams read it.
  template <int kHalf>
  __device__ __forceinline__ void leave_ds(const float (&s)[kM / 2], const float (&dp)[32]) {
    const float* delta = smem_.delta[d_out_place().stage()] + kHalf * 64 + lane() % 4 * 2;
    const int key = team_ * 64 + warp() * 16 + lane() % 16;
    const uint32_t row = hopper::shared_address(smem_.ds[ds_place(tiles_).stage()]) +
                         kHalf * D::kKeyChunkBytes + key * hopper::kChunkBytes +
                         ((lane() / 16 ^ lane() % 8) * 16);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t ds[4];
#pragma unroll
      for (int j = 2 * step; j < 2 * step + 2; ++j) {
        const float2 d = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * j + 2 * h, k = 32 * kHalf + i;
          ds[j % 2 * 2 + h] = hopper::pack_pair<kType>(s[k] * (dp[i] - d.x), s[k + 1] * (dp[i + 1] - d.y));
        }
      }
      hopper::store_matrices(row ^ (step * 32), ds);
    }
  }

  /// Hands the team's part of a tile's dq to the warp that adds it.
  __device__ __forceinline__ void hand_over(const float (&dq)[32], const TilePlace& tile) {
    hopper::Ring<1>& ring = smem_.dq_ring[team_];
    const hopper::RingPlace<1> place{tile.count};
    ring.await_empty(place);
    float* to = smem_.dq[team_] + threadIdx.x % 128 * 4;
#pragma unroll
    for (int j = 0; j < 8; ++j)
      *reinterpret_cast<float4*>(to + j * 512) =
          make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
    hopper::fence_for_wgmma();
    __syncwarp();
    if (lane() == 0) ring.full_at(place).arrive();
  }

  /// Writes dk or dv of the team's keys.
  __device__ __forceinline__ void store(const float (&sums)[kD / 2], void* out, int64_t stride_token,
                                        int64_t stride_head, float factor) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int key = item().first_key + team_ * 64 + warp() * 16 + lane() / 4 + 8 * h;
      uint16_t* row = static_cast<uint16_t*>(out) +
                      (static_cast<int64_t>(item().k_row) + key) * stride_token +
                      item().kv_head * stride_head + lane() % 4 * 8;
#pragma unroll
      for (int c = 0; c < kD / 32; ++c) {
        uint32_t word[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int i = 4 * (4 * c + k) + 2 * h;
          word[k] = hopper::pack_pair<kType>(sums[i] * factor, sums[i + 1] * factor);
        }
        const uint4 channels = hopper::quad_transpose(word[0], word[1], word[2], word[3], lane());
        if (key < item().k_len) *reinterpret_cast<uint4*>(row + 32 * c) = channels;
      }
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int team_;
  hopper::RingPlace<2> items_;
  hopper::RingPlace<1> keys_;  ///< counts the items that have tiles
  TilePlace tiles_;            ///< counts tiles, and a tile once for each head
  float dk_[kD / 2], dv_[kD / 2];
};

}  // namespace attnbench::sm90_backward
