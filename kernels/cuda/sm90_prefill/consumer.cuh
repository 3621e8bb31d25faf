// The consumer warpgroups: each owns 64 rows of the tile and runs S = Q K^T, softmax, O += P V over its KV
// blocks.
#pragma once

#include "kernels/cuda/common/named_barrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/epilogue.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/softmax.cuh"

namespace attnbench::sm90_prefill {

/// Turns at the tensor cores: warpgroup w issues its products while the others do softmax, then w + 1 may.
/// Each waits on a barrier of its own, which the one before it arrives at: 128 threads wait, 128 arrive.
template <Shape kShape>
class Turn {
 public:
  __device__ __forceinline__ explicit Turn(int consumer)
      : mine_(1 + consumer), next_(1 + (consumer + 1) % Derived<kShape>::kConsumers) {
    if (kShape.turns && consumer == 0) hopper::named_barrier_arrive(mine_, 256);  // the first turn is free
  }
  __device__ __forceinline__ void wait() const {
    if (kShape.turns) hopper::named_barrier_sync(mine_, 256);
  }
  __device__ __forceinline__ void pass() const {
    if (kShape.turns) hopper::named_barrier_arrive(next_, 256);
  }

 private:
  int mine_;
  int next_;
};

/// What of a KV block the rows of one warpgroup see. Keys count from the sequence's first.
template <Shape kShape>
class Visibility {
 public:
  /// This thread's rows are `thread_row` and thread_row + 8, the warpgroup's `first_row` to first_row + 63.
  __device__ __forceinline__ Visibility(const KernelParams& p, const WorkItem& item, int first_row,
                                        int thread_row, int lane) {
    const int lane_keys = 2 * (lane % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      end_[h] = item.k_len - lane_keys;
      if constexpr (kShape.masked) {
        const int diagonal = item.diagonal + (thread_row + 8 * h) / p.heads_per_tile - lane_keys;
        end_[h] = min(end_[h], diagonal + p.reach_right + 1);
        begin_[h] = diagonal - p.reach_left;
      }
    }
    all_see_until_ = item.k_len;
    if constexpr (kShape.masked) {
      const int first_diagonal = item.diagonal + first_row / p.heads_per_tile;
      const int last_diagonal = item.diagonal + (first_row + 63) / p.heads_per_tile;
      all_see_until_ = min(all_see_until_, first_diagonal + p.reach_right + 1);
      all_see_from_ = last_diagonal - p.reach_left;
    }
  }

  /// Masks the scores of KV block n, if some row does not see all of it.
  template <int kCount>
  __device__ __forceinline__ void mask(float (&s)[kCount], int n) const {
    const int first_key = n * kShape.block_n;
    if (first_key + kShape.block_n > all_see_until_) mask_from(s, {end_[0] - first_key, end_[1] - first_key});
    if constexpr (kShape.masked) {
      if (first_key < all_see_from_) mask_before(s, {begin_[0] - first_key, begin_[1] - first_key});
    }
  }

 private:
  int end_[2];
  int begin_[2];
  int all_see_until_;
  int all_see_from_;
};

template <Shape kShape>
class Consumer {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ Consumer(const KernelParams& p, SharedMemory<kShape>& smem, int consumer)
      : p_(p),
        smem_(smem),
        turn_(consumer),
        lane_(threadIdx.x % 32),
        first_row_(64 * consumer),
        thread_row_(64 * consumer + 16 * (threadIdx.x / 32 % 4) + lane_ / 4) {}

  /// Runs for the life of the block.
  __device__ __forceinline__ void run() {
    while (true) {
      smem_.q_full[q_.stage()].wait(q_.parity());
      const WorkItem item = smem_.item[q_.stage()];
      if (item.head < 0) return;
      float o[kShape.head_dim / 2];
#pragma unroll
      for (float& x : o) x = 0.0f;
      OnlineSoftmax softmax;
      if (item.n_begin < item.n_end) {
        if constexpr (kShape.overlap) {
          attend(item, o, softmax);
        } else {
          attend_in_order(item, o, softmax);
        }
      } else {
        release(smem_.q_empty[q_.stage()]);
      }
      q_.advance();
      store_rows<kShape>(p_, item, thread_row_, o, softmax, lane_);
    }
  }

 private:
  using Scores = float[kShape.block_n / 2];
  using Outputs = float[kShape.head_dim / 2];
  using Weights = uint32_t[kShape.block_n / 16][4];

  /// One arrival per warp: the other warps of a warpgroup may still read the buffer.
  __device__ __forceinline__ void release(hopper::Mbarrier& empty) const {
    if (lane_ == 0) empty.arrive();
  }

  /// Waits for the K tile at k_, if there is one.
  __device__ __forceinline__ void await_k(bool exists) {
    if (exists) smem_.k_full[k_.stage()].wait(k_.parity());
  }

  /// Issues S = Q K^T for the K tile at k_. Both are K-major: a step of 16 channels is 32 bytes within the
  /// swizzled row.
  __device__ __forceinline__ void issue_scores(Scores& s) const {
    const hopper::SwizzledTile q(smem_.q[q_.stage()] + first_row_ * hopper::kChunkBytes, 0);
    const hopper::SwizzledTile k(smem_.k[k_.stage()], 0);
    hopper::pin(s);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kShape.head_dim / 16; ++i) {
      const int chunk = i / 4;
      const int in_row = i % 4 * 32;
      hopper::Wgmma<kShape.block_n>::template from_shared<kShape.dtype>(
          s, q.at(chunk * D::kQChunkBytes + in_row), k.at(chunk * D::kKvChunkBytes + in_row), i > 0);
    }
    hopper::wgmma_commit();
  }

  /// Issues O += P V for the V tile at v_. V is MN-major: a step of 16 keys is 16 rows of 128 bytes.
  __device__ __forceinline__ void issue_outputs(Outputs& o, Weights& weights) const {
    const hopper::SwizzledTile v(smem_.v[v_.stage()], D::kKvChunkBytes);
    hopper::pin(o);
    hopper::pin(weights);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kShape.block_n / 16; ++i) {
      hopper::Wgmma<kShape.head_dim>::template from_registers<kShape.dtype>(
          o, weights[i], v.at(i * 16 * hopper::kChunkBytes), 1);
    }
    hopper::wgmma_commit();
  }

  /// Scores of KV block n to weights, in place.
  __device__ __forceinline__ void weigh(Scores& s, const Visibility<kShape>& visibility, int n,
                                        OnlineSoftmax& softmax, float (&shrink)[2]) const {
    if constexpr (kShape.softcap) apply_tanh(s, p_.tanh_factor);
    visibility.mask(s, n);
    softmax.update(s, p_.score_factor, shrink);
  }

  /// All KV blocks of one tile, last to first. Leaves unnormalised outputs in o.
  __device__ __forceinline__ void attend(const WorkItem& item, Outputs& o, OnlineSoftmax& softmax) {
    const Visibility<kShape> visibility(p_, item, first_row_, thread_row_, lane_);
    Scores s;
    Weights weights;
    float shrink[2];
    int n = item.n_end - 1;

    await_k(true);
    issue_scores(s);
    hopper::wgmma_wait<0>();
    hopper::pin(s);
    release(smem_.k_empty[k_.stage()]);
    k_.advance();
    weigh(s, visibility, n, softmax, shrink);  // o is 0: nothing to shrink
    pack_weights<kShape.dtype>(weights, s);

    await_k(n > item.n_begin);
    while (--n >= item.n_begin) {
      turn_.wait();
      issue_scores(s);
      smem_.v_full[v_.stage()].wait(v_.parity());
      issue_outputs(o, weights);
      turn_.pass();

      hopper::wgmma_wait<1>();  // the scores; softmax of block n runs beside the outputs of block n + 1
      hopper::pin(s);
      release(smem_.k_empty[k_.stage()]);
      k_.advance();
      weigh(s, visibility, n, softmax, shrink);
      hopper::pin(s);
      // Here, not at the top of the loop: the branch ends a basic block. Without it ptxas schedules the next
      // wait ahead of the exponentials, and nothing overlaps.
      await_k(n > item.n_begin);

      hopper::wgmma_wait<0>();  // the outputs: from here o and weights may be written
      hopper::pin(o);
      release(smem_.v_empty[v_.stage()]);
      v_.advance();
      pack_weights<kShape.dtype>(weights, s);
      rescale(o, shrink);
    }
    release(smem_.q_empty[q_.stage()]);  // the next Q arrives during what is left of this tile

    smem_.v_full[v_.stage()].wait(v_.parity());
    issue_outputs(o, weights);
    hopper::wgmma_wait<0>();
    hopper::pin(o);
    release(smem_.v_empty[v_.stage()]);
    v_.advance();
  }

  /// The same, one product after the other: what overlap is measured against.
  __device__ __forceinline__ void attend_in_order(const WorkItem& item, Outputs& o, OnlineSoftmax& softmax) {
    const Visibility<kShape> visibility(p_, item, first_row_, thread_row_, lane_);
    Scores s;
    Weights weights;
    float shrink[2];
    for (int n = item.n_end - 1; n >= item.n_begin; --n) {
      await_k(true);
      turn_.wait();
      issue_scores(s);
      turn_.pass();
      hopper::wgmma_wait<0>();
      hopper::pin(s);
      release(smem_.k_empty[k_.stage()]);
      k_.advance();
      weigh(s, visibility, n, softmax, shrink);
      pack_weights<kShape.dtype>(weights, s);
      rescale(o, shrink);
      smem_.v_full[v_.stage()].wait(v_.parity());
      issue_outputs(o, weights);
      hopper::wgmma_wait<0>();
      hopper::pin(o);
      release(smem_.v_empty[v_.stage()]);
      v_.advance();
    }
    release(smem_.q_empty[q_.stage()]);
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const Turn<kShape> turn_;
  const int lane_;
  const int first_row_;   ///< of the warpgroup, in the tile
  const int thread_row_;  ///< first row of this thread; the second is 8 further on
  hopper::RingPlace<kShape.q_stages> q_;
  hopper::RingPlace<kKvStages> k_, v_;
};

}  // namespace attnbench::sm90_prefill
