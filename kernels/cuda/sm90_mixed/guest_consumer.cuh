// The guests: a warpgroup that decodes beside sm90_prefill's consumers, in the same block.
//
// Their products are wgmma too, because mma.sync hardly gets a turn at tensor cores that others keep busy.
// Scores and outputs are transposed: keys or channels are the 64 rows of a product, and the query rows of a
// KV head, at most 8, its columns. So they need few registers.
#pragma once

#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_decode/epilogue.cuh"
#include "kernels/cuda/sm90_decode/seen_keys.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_mixed/instances.h"

namespace attnbench::sm90_mixed {

inline constexpr int kGuestWarps = 4;
inline constexpr int kGuestRows = 8;

/// The sequences whose suffixes a block has finished, for the warps that merge them with the shared keys
/// (row_merger.cuh). Entries are atomic, and absent until they are added.
struct FinishedSuffixes {
  static constexpr int32_t kNoMore = -1, kAbsentEntry = -2;

  int32_t added;                        ///< entries; belongs to the thread that adds
  int32_t sequence[kMostSuffixes + 1];  ///< the last one is kNoMore

  /// All threads of the block call it, before a barrier.
  __device__ __forceinline__ void clear() {
    if (threadIdx.x == 0) added = 0;
    for (uint32_t i = threadIdx.x; i <= kMostSuffixes; i += blockDim.x) sequence[i] = kAbsentEntry;
  }

  /// One thread adds all entries. What it saw written is visible to those who get the entry.
  __device__ __forceinline__ void add(int32_t b) {
    __threadfence_block();
    atomicExch(&sequence[added++], b);
  }

  /// Waits until entry `i` is there, and returns it. All lanes of a warp call it.
  __device__ __forceinline__ int32_t await(uint32_t i, int lane) {
    int32_t b = kAbsentEntry;
    while (lane == 0 && (b = atomicOr(&sequence[i], 0)) == kAbsentEntry) __nanosleep(100);
    b = __shfl_sync(~0u, b, 0);
    __threadfence_block();
    return b;
  }
};
struct NoSuffixes {};

/// Shared memory of the guests besides that of sm90_decode.
template <bool kSuffixes>
struct alignas(1024) GuestMemory {
  /// Weights of two tiles, [row][64 keys] in the 128-byte swizzle.
  uint8_t weights[2][kGuestRows * hopper::kChunkBytes];
  float of_warp[kGuestWarps][kGuestRows];  ///< each warp's greatest scores, or sums of weights
  [[no_unique_address]] std::conditional_t<kSuffixes, FinishedSuffixes, NoSuffixes> finished;
};

/// The warpgroup, for the life of the block: S^T = K Q^T, weights, O^T += V^T P^T, tile by tile of 64 keys.
/// In an accumulator a thread holds in d[2 * half + h] row 16 * warp + lane / 4 + 8 * half of the product,
/// for query row 2 * (lane % 4) + h.
///
/// Weights are relative to a reference score of their query row. It moves only when some weights come out too
/// heavy, as in sm90_prefill/softmax.cuh. So most tiles need neither their maximum nor an exchange between
/// warps.
template <sm90_decode::Shape kShape>
class GuestConsumer {
  using D = sm90_decode::Derived<kShape>;
  static constexpr int kDepth = kShape.head_dim / 16;  ///< steps of 16 channels
  static constexpr int kSteps = kShape.tile_tokens / 16;
  static constexpr int kChunkBytes = kShape.tile_tokens * hopper::kChunkBytes;  ///< of one chunk of a tile
  static constexpr float kHeaviest = 1024.0f;
  static_assert(kShape.tile_tokens == 64 && D::kRows == kGuestRows && D::kConsumerWarps == kGuestWarps);

 public:
  __device__ __forceinline__ GuestConsumer(const sm90_decode::KernelParams& p,
                                           sm90_decode::SharedMemory<kShape>& smem,
                                           GuestMemory<kShape.suffixes>& memory, int kv_head)
      : p_(p),
        smem_(smem),
        memory_(memory),
        kv_head_(kv_head),
        lane_(threadIdx.x % 32),
        warp_(__shfl_sync(~0u, threadIdx.x / 32 - D::kFirstConsumerWarp, 0)) {}

  __device__ __forceinline__ void run() {
    for (;;) {
      smem_.q_ring.await_full(q_);
      const sm90_decode::Item& item = smem_.item[q_.stage()];  // valid until this warp releases the stage
      if (item.num_splits == 0) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        offset_[h] = INFINITY;
        sum_[h] = 0.0f;
      }
#pragma unroll
      for (int c = 0; c < D::kKvChunks; ++c) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[c][i] = 0.0f;
      }
      all_seen_ = find_seen().all;
      expired_ = visible_keys_of_sequence(p_.window_left, item.q_len, item.k_len).begin;
      rows_ = item.q_len * p_.group - lane_ % 4 * 2;
      const int tile_end = item.tile_end;
      for (int tile = item.tile_begin; tile < tile_end; ++tile) add_tile(tile);
      constexpr sm90_decode::Scales kNone{0.0f, 1.0f, 1.0f};  // offsets are logits in base 2
      const bool whole = item.num_splits == 1;
      const bool merged = sm90_decode::finish_segment<kShape>(p_, smem_, item, kv_head_, kNone, *this);
      if constexpr (kShape.suffixes) {
        if (merged) meet();
        if ((whole || merged) && threadIdx.x % 128 == 0) memory_.finished.add(item.b);
      }
      smem_.q_ring.release(q_, lane_);
      q_.advance();
    }
  }

  /// write_sums() and write_outputs() are what sm90_decode::finish_segment requires of its results.
  __device__ __forceinline__ void write_sums(sm90_decode::SharedMemory<kShape>& smem) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = sum_[h];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (lane_ < 4) memory_.of_warp[warp_][2 * lane_ + h] = sum;
    }
    meet();
    if (warp_ == 0 && lane_ < 4) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 2 * lane_ + h;
        float sum = 0.0f;
#pragma unroll
        for (int w = 0; w < kGuestWarps; ++w) sum += memory_.of_warp[w][row];
        smem.merge_sum[0][row] = sum;
        smem.merge_max[0][row] = -offset_[h];
      }
    }
  }

  __device__ __forceinline__ void write_outputs(sm90_decode::SharedMemory<kShape>& smem, int rows,
                                                int) const {
    static_assert(D::kMergeChannels == kShape.head_dim);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane_ % 4 * 2 + h;
      if (row >= rows) continue;
#pragma unroll
      for (int c = 0; c < D::kKvChunks; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int channel = 64 * c + 16 * warp_ + 8 * half + lane_ / 4;
          sm90_decode::merge_unit(smem.merge_out[0], row, channel / 4)[channel % 4] = o_[c][2 * half + h];
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void meet() const {
    hopper::named_barrier_sync(sm90_decode::kConsumerBarrier, D::kConsumerThreads);
  }

  __device__ __forceinline__ sm90_decode::SeenKeys find_seen() const {
    return sm90_decode::find_seen_keys(p_, smem_.item[q_.stage()], lane_ % 4 * 2, 1);
  }

  __device__ __forceinline__ void add_tile(int tile) {
    float s[4];
    smem_.kv_ring.await_full(kv_);
    multiply_k(s);
    smem_.kv_ring.release(kv_, lane_);
    kv_.advance();

    const int first = tile * kShape.tile_tokens + warp_ * 16;
    if (__builtin_expect(all_seen_.lacks(first, 16), 0)) {
      const sm90_decode::SeenKeys seen = find_seen();
#pragma unroll
      for (int i = 0; i < 4; ++i) s[i] = seen.masked(s[i], i % 2, first + lane_ / 4 + i / 2 * 8);
    }
    uint8_t* weights = memory_.weights[kv_.count / 2 % 2];
    float w[4];
    weigh(w, s, offset_, weights);
    // NaN counts as heavy: rows without a reference get NaN. Columns past the last row hold rows of other
    // sequences or none, and are ignored.
    const bool heavy =
        (rows_ > 0 && !(w[0] + w[2] <= kHeaviest)) || (rows_ > 1 && !(w[1] + w[3] <= kHeaviest));
    if (__builtin_expect(hopper::named_barrier_any(sm90_decode::kConsumerBarrier, D::kConsumerThreads, heavy),
                         0)) {
      float usable[2];
      rebase(s, usable);
      weigh(w, s, usable, weights);
      meet();
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum_[h] += w[h] + w[2 + h];

    smem_.kv_ring.await_full(kv_);
    if (__builtin_expect(tile * kShape.tile_tokens < expired_, 0)) clear_expired(tile * kShape.tile_tokens);
    add_product_v(weights);
    smem_.kv_ring.release(kv_, lane_);
    kv_.advance();
  }

  /// s = K Q^T. A step of 16 channels is 32 bytes within the swizzled row.
  __device__ __forceinline__ void multiply_k(float (&s)[4]) {
    const hopper::SwizzledTile<> k{smem_.kv[kv_.stage()], 0}, q{smem_.q[q_.stage()], 0};
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      const int in_row = i % 4 * 32;
      hopper::wgmma_m64n8<kShape.dtype, false>(s, k.at(i / 4 * kChunkBytes + in_row),
                                               q.at(i / 4 * D::kQChunkBytes + in_row), i > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(s);
  }

  /// o += V^T P^T. A step of 16 keys is 16 rows of V, and 32 bytes of a row of weights.
  __device__ __forceinline__ void add_product_v(const uint8_t* weights) {
    const hopper::SwizzledTile<> v{smem_.kv[kv_.stage()], 0}, p{weights, 0};
#pragma unroll
    for (int c = 0; c < D::kKvChunks; ++c) hopper::pin(o_[c]);
    hopper::wgmma_fence();
#pragma unroll
    for (int c = 0; c < D::kKvChunks; ++c) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        hopper::wgmma_m64n8<kShape.dtype, true>(o_[c], v.at(c * kChunkBytes + i * 16 * hopper::kChunkBytes),
                                                p.at(i * 32), 1);
      }
    }
    hopper::wgmma_commit();
    // Waits at once, so that the slot is released. If it waited behind the next scores, decodes would lack
    // copies in flight.
    hopper::wgmma_wait<0>();
#pragma unroll
    for (int c = 0; c < D::kKvChunks; ++c) hopper::pin(o_[c]);
  }

  /// Zeroes the values of a tile's tokens, from `first` on, that no query of the sequence sees. They may be
  /// NaN, which a weight of 0 does not cancel. All warps call it.
  __device__ __forceinline__ void clear_expired(int first) const {
    constexpr int kUnits = hopper::kChunkBytes / sizeof(uint4);
    auto* slot = reinterpret_cast<uint4*>(smem_.kv[kv_.stage()]);
    const int units = min(expired_ - first, kShape.tile_tokens) * kUnits;
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < units; i += 128) {
#pragma unroll
      for (int c = 0; c < D::kKvChunks; ++c) slot[c * kShape.tile_tokens * kUnits + i] = uint4{};
    }
    hopper::fence_for_wgmma();
    meet();
  }

  /// Computes the weights of this warp's 16 keys, and writes them to shared memory, where wgmma sees them
  /// after the next barrier.
  __device__ __forceinline__ void weigh(float (&w)[4], const float (&s)[4], const float (&offsets)[2],
                                        uint8_t* weights) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = hopper::exp2_approx(fmaf(s[i], p_.score_factor, offsets[i % 2]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Transposes [key][row] to [row][key]: row lane / 4, keys 2 * (lane % 4) and the next.
      const uint32_t pair =
          hopper::transpose_matrix(hopper::pack_pair<kShape.dtype>(w[2 * half], w[2 * half + 1]));
      const int row = lane_ / 4;
      const int unit = (2 * warp_ + half) ^ row;
      *reinterpret_cast<uint32_t*>(weights + row * hopper::kChunkBytes + unit * 16 + lane_ % 4 * 4) = pair;
    }
    hopper::fence_for_wgmma();
  }

  /// Moves the references to the greatest scores so far; what was summed before shrinks. `usable` receives
  /// the offsets, 0 where a row has none yet. All warps call it.
  __device__ __forceinline__ void rebase(const float (&s)[4], float (&usable)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = fmaxf(s[h], s[2 + h]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
      if (lane_ < 4) memory_.of_warp[warp_][2 * lane_ + h] = most;
    }
    meet();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane_ % 4 * 2 + h;
      float most = memory_.of_warp[0][row];
#pragma unroll
      for (int w = 1; w < kGuestWarps; ++w) most = fmaxf(most, memory_.of_warp[w][row]);
      const float previous = offset_[h];
      offset_[h] = fminf(previous, -(most * p_.score_factor));
      // No key seen yet: all weights become 2^-inf = 0, not 2^(inf - inf).
      usable[h] = offset_[h] == INFINITY ? 0.0f : offset_[h];
      const float shrink = hopper::exp2_approx(usable[h] - previous);
      sum_[h] *= shrink;
#pragma unroll
      for (int c = 0; c < D::kKvChunks; ++c) {
        o_[c][h] *= shrink;
        o_[c][2 + h] *= shrink;
      }
    }
  }

  const sm90_decode::KernelParams& p_;
  sm90_decode::SharedMemory<kShape>& smem_;
  GuestMemory<kShape.suffixes>& memory_;
  const int kv_head_;
  const int lane_;
  const int warp_;
  hopper::RingPlace<sm90_decode::kQStages> q_;
  hopper::RingPlace<kShape.slots> kv_;

  sm90_decode::KeyRange all_seen_;  ///< keys that all rows see
  int expired_;                     ///< leading keys of the sequence that none of its queries sees
  int rows_;                  ///< rows from this lane's first on: its row h is the sequence's if h < rows_
  float o_[D::kKvChunks][4];  ///< channels 64 * c + ...
  float offset_[2];           ///< -score_factor * reference; inf while the row has seen no key
  float sum_[2];              ///< sums of weights of this lane's keys
};

}  // namespace attnbench::sm90_mixed
