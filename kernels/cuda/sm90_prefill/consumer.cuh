// The consumer warpgroups: each owns 64 rows of the tile and runs S = Q K^T, softmax, O += P V over its KV
// blocks.
#pragma once

#include "kernels/cuda/common/named_barrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/epilogue.cuh"
#include "kernels/cuda/sm90_prefill/key_scales.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/softmax.cuh"
#include "kernels/cuda/sm90_prefill/visibility.cuh"

namespace attnbench::sm90_prefill {

/// The warpgroups' turns at the tensor cores. Warpgroup w issues its products while the others do softmax;
/// then w + 1 may. Each waits on a named barrier of its own, at which the warpgroup before it arrives: 128
/// threads wait, 128 arrive.
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

  /// Runs for the life of the block, tile by tile.
  __device__ __forceinline__ void run() {
    WorkItem item;
    Scores s;
    Outputs o;
    Weights weights;
    if (!next_tile(item)) return;
    do {
      if constexpr (D::kPasses) pass_unseen(item);
      start(s, o, weights, item);
      run_tile(s, o, weights);
      finish(s, o, weights);
      if constexpr (D::kTakesWindows) pass_rest();
    } while (next_tile(item));
  }

 private:
  using Scores = float[kShape.block_n / 2];
  /// Sums of products in int8, which become scores. Other instances do not use them.
  using Sums = int32_t[kShape.block_n / 2];
  using Outputs = float[D::kDimV / 2];
  using Weights = uint32_t[kShape.block_n / D::kStepKeys][4];
  using QTile = hopper::SwizzledTile<D::kAtomBytes, D::kChunkBytes>;
  using KTile = hopper::SwizzledTile<D::kKGroupBytes, D::kChunkBytes>;
  using VTile = std::conditional_t<kShape.e4m3_q, hopper::SwizzledTile<>,
                                   hopper::SwizzledTile<D::kVGroupBytes, D::kChunkBytes>>;

  __device__ __forceinline__ void await_k() { smem_.k_ring.await_full(k_); }

  /// First row of this thread in the tile; the second is 8 further on. Where registers are short, each use computes
  /// it, because a volatile read is not kept.
  __device__ __forceinline__ int thread_row() const {
    if constexpr (!D::kSumsInScores && !D::kParks) return thread_row_;
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return first_row_ + 16 * (thread / 32 % 4) + thread % 32 / 4;
  }

  __device__ __forceinline__ static int parked_thread() { return threadIdx.x - 128; }

  __device__ __forceinline__ Visibility<kShape> visibility() const {
    Visibility<kShape> v = visibility_;
    if constexpr (D::kParks) v.unpark(smem_.parked, parked_thread());
    return v;
  }

  __device__ __forceinline__ TileRows& own_rows() const { return smem_.rows[threadIdx.x / 32 - 4]; }

  __device__ __forceinline__ TileScales& own_scales() const {
    return smem_.landing.own_scales[threadIdx.x / 32 - 4];
  }

  /// Moves on to the next tile that sees keys, and reads what its products need. Returns false after the last
  /// tile. Tiles without keys are written at once.
  __device__ __forceinline__ bool next_tile(WorkItem& item) {
    while (true) {
      smem_.q_ring.await_full(q_);
      item = take_item(smem_.item[q_.stage()], lane_);
      if (item.head < 0) return false;
      n_ = item.n_end - 1;
      n_begin_ = item.n_begin;
      if (__builtin_expect(n_ >= n_begin_, 1)) return true;
      const TileRows rows{item.q_row, item.q_tokens, item.state, item.head, item.n_begin};
      store_unseen<kShape>(p_, rows, thread_row(), lane_);
      smem_.q_ring.release(q_, lane_);
      q_.advance();
    }
  }

  /// Releases the next KV block, which no row of this warpgroup sees, although others of the tile do.
  __device__ __forceinline__ void pass_block() {
    await_k();
    smem_.k_ring.release(k_, lane_);
    k_.advance();
    turn_.wait();
    turn_.pass();
    smem_.v_ring.await_full(v_);
    smem_.v_ring.release(v_, lane_);
    v_.advance();
  }

  /// Sets n_ and n_begin_ to the first and the last KV block that a row of this warpgroup sees, or both to one block.
  /// Passes over the blocks before them. pass_rest() passes over those behind them.
  __device__ __forceinline__ void pass_unseen(const WorkItem& item) {
    const int last_seen = item.diagonal + token_of_row(p_, first_row_ + 63) + p_.reach_right;
#pragma unroll 1
    for (; n_ > n_begin_ && n_ * kShape.block_n > last_seen; --n_) pass_block();
    if constexpr (D::kTakesWindows) {
      const int first_seen = item.diagonal + token_of_row(p_, first_row_) - p_.reach_left;
      n_begin_ = min(n_, max(n_begin_, first_seen / kShape.block_n));
    }
  }

  /// Passes over the tile's last KV blocks, which no row of this warpgroup sees. The shuffle tells the compiler that all
  /// lanes pass as many, so that the places in the rings stay in uniform registers.
  __device__ __forceinline__ void pass_rest() {
#pragma unroll 1
    for (int rest = __shfl_sync(~0u, n_begin_ - own_rows().n_begin, 0); rest > 0; --rest) pass_block();
  }

  /// Begins to read the scales of this thread's query rows, which describe_tile() uses. Rows past the tile's last token
  /// are not read.
  __device__ __forceinline__ void read_query_scales(const WorkItem& item) {
    const TileRows rows{item.q_row, item.q_tokens, item.state, item.head, item.n_begin};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = thread_row() + 8 * h;
      const int token = token_of_row(p_, row);
      const int64_t place = int64_t{item.q_row + token} * p_.descales.q_stride_outer +
                            head_of_row(p_, rows, row) * p_.descales.q_stride_head;
      int8_.scales.of_row[h] = token < item.q_tokens ? __ldg(p_.descales.q + place) : 1.0f;
    }
  }

  /// Computes what else there is to know of a tile, while its first products run.
  __device__ __forceinline__ void describe_tile(const WorkItem& item) {
    const TileRows rows{item.q_row, item.q_tokens, item.state, item.head, item.n_begin};
    visibility_ = Visibility<kShape>(p_, item, first_row_, thread_row(), lane_);
    if constexpr (D::kParks) visibility_.park(smem_.parked, parked_thread());
    softmax_ = OnlineSoftmax{};
    __syncwarp();  // all lanes have stored their rows of the tile before
    if (lane_ == 0) {
      own_rows() = rows;
      if constexpr (kShape.e4m3_kv) own_scales() = smem_.landing.scales[q_.stage()];
    }
    __syncwarp();
    // The shuffle tells the compiler that the factor is the same in all lanes, so it takes no register.
    if constexpr (kShape.e4m3_kv) score_factor_ = __shfl_sync(~0u, p_.score_factor * own_scales().score, 0);
    if constexpr (kShape.int8_qk) {
      int8_.factors = factors_of(int8_.scales, p_.score_factor);
      int8_.signs = QuerySigns(int8_.scales);
      int8_.any_sign = int8_.signs.exist();
    }
  }

  /// Whether the scores of block n_, which is not a tile's first, need neither masks nor signs. It is asked beside the
  /// products, so that a step has one branch for what is rare, and knows early that it passes it.
  __device__ __forceinline__ bool is_plain() const {
    bool plain = visibility_.is_whole(n_);
    if constexpr (kShape.int8_qk) plain = plain && !int8_.any_sign;
    return plain;
  }

  /// After the products with K: releases K, and Q after the warpgroup's last KV block of the tile. Masks the scores of
  /// block n_. In the first block it masks only what lies left of the window; OnlineSoftmax::begin() masks the rest.
  template <bool kFirst>
  __device__ __forceinline__ void take_scores(Scores& s, Sums& sums, bool plain) {
    if constexpr (kShape.int8_qk) {
      hopper::pin(sums);
      scale_by_keys(s, sums, smem_.key_scales.scale[k_.stage()] + 2 * (lane_ % 4));
    } else {
      hopper::pin(s);
    }
    smem_.k_ring.release(k_, lane_);
    k_.advance();
    if constexpr (kShape.softcap) hopper::apply_tanh(s, tanh_factor());
    const bool last = n_ == n_begin_;
    if constexpr (!D::kConvertsK) {  // without a branch, which is faster, but takes registers
      __syncwarp();
      if (last && lane_ == 0) smem_.q_ring.empty[q_.stage()].arrive();
      q_.count += last ? 1 : 0;
    } else if (last) {
      smem_.q_ring.release(q_, lane_);
      q_.advance();
    }
    if (__builtin_expect(plain, 1)) return;
    if constexpr (kShape.int8_qk) {
      if (int8_.any_sign) int8_.signs.apply(s);
    }
    if constexpr (kFirst) {
      visibility().mask_left(s, n_);
    } else {
      visibility().mask(s, n_);
    }
  }

  /// Factors of the current tile, as in KernelParams.
  __device__ __forceinline__ auto score_factor() const {
    if constexpr (kShape.int8_qk) {
      return int8_.factors;
    } else if constexpr (kShape.e4m3_kv && !kShape.softcap) {
      return score_factor_;
    } else {
      return p_.score_factor;
    }
  }
  __device__ __forceinline__ float tanh_factor() const {
    if constexpr (kShape.e4m3_kv) return p_.tanh_factor * own_scales().score;
    return p_.tanh_factor;
  }
  __device__ __forceinline__ float out_factor() const {
    if constexpr (kShape.e4m3_kv) return own_scales().out;
    return 1.0f;
  }

  /// Descriptors of the tiles at q_ (this warpgroup's rows), k_ and v_. They are made ahead of the turn that
  /// uses them.
  __device__ __forceinline__ QTile q_tile() const {
    return {smem_.q[q_.stage()] + first_row_ * D::kChunkBytes, 0};
  }
  __device__ __forceinline__ KTile k_tile() const { return {smem_.k[k_.stage()], 0}; }
  __device__ __forceinline__ VTile v_tile() const {
    return {smem_.v[v_.stage()], kShape.e4m3_q ? 0 : D::kAtomBytes};
  }

  /// Issues S = Q K^T. Both are K-major: a step of 16 channels, or 32 in 8 bits, is 32 bytes within the
  /// swizzled row.
  __device__ __forceinline__ void issue_scores(Scores& s, Sums& sums, const QTile& q, const KTile& k) {
    constexpr int kStepsPerChunk = D::kChunkBytes / 32;
    if constexpr (!kShape.int8_qk) hopper::pin(s);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kStepsPerChunk * D::kChunks; ++i) {
      const int chunk = i / kStepsPerChunk;
      const int in_row = i % kStepsPerChunk * 32;
      const uint64_t a = q.at(chunk * D::kQChunkBytes + in_row), b = k.at(chunk * D::kAtomBytes + in_row);
      if constexpr (kShape.int8_qk) {
        hopper::wgmma_int8(sums, a, b, i > 0);
      } else {
        hopper::Wgmma<kShape.block_n>::template from_shared<D::kScoreMath>(s, a, b, i > 0);
      }
    }
    hopper::wgmma_commit();
  }

  /// Issues O += P V, or O = P V for a tile's first KV block. V is MN-major: a step of 16 keys is two groups
  /// of 8 rows. In e4m3 it is K-major: a step of 32 keys is 32 bytes within the swizzled row.
  __device__ __forceinline__ void issue_outputs(Outputs& o, Weights& weights, const VTile& v) {
    hopper::pin(o);
    hopper::pin(weights);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kShape.block_n / D::kStepKeys; ++i) {
      hopper::Wgmma<D::kDimV>::template from_registers<D::kMath>(
          o, weights[i], v.at(i * (kShape.e4m3_q ? D::kStepKeys : 2 * D::kVGroupBytes)),
          D::kClearsOutputs || i > 0 ? 1 : accumulate_);
    }
    hopper::wgmma_commit();
    accumulate_ = 1;
  }

  /// Waits for the products with V. Then o and weights may be written.
  __device__ __forceinline__ void await_outputs(Outputs& o) {
    hopper::wgmma_wait<0>();
    hopper::pin(o);
    smem_.v_ring.release(v_, lane_);
    v_.advance();
  }

  /// Computes O += P V with two levels of sums: products with V sum over the KV block alone.
  __device__ __forceinline__ void add_block(Scores& s, Outputs& o, Weights& weights) {
    smem_.v_ring.await_full(v_);
    const VTile v = v_tile();
    if constexpr (D::kSumsInScores) {
#pragma unroll
      for (int column = 0; column < D::kDimV; column += kShape.block_n)
        add_columns<kShape.block_n>(s, o, weights, v, column);
    } else {
      float sums[D::kDimV / 2];
      add_columns<D::kDimV>(sums, o, weights, v, 0);
    }
    v_.advance();
  }

  /// The same for kColumns channels from `column` on. After the last ones it releases V.
  template <int kColumns>
  __device__ __forceinline__ void add_columns(float (&sums)[kColumns / 2], Outputs& o, Weights& weights,
                                              const VTile& v, int column) {
    hopper::pin(sums);
    hopper::pin(weights);
    hopper::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kShape.block_n / D::kStepKeys; ++i) {
      hopper::Wgmma<kColumns>::template from_registers<D::kMath>(
          sums, weights[i], v.at(column * hopper::kChunkBytes + i * D::kStepKeys), i > 0);
    }
    hopper::wgmma_commit();
    hopper::wgmma_wait<0>();
    hopper::pin(sums);
    if (column == D::kDimV - kColumns) smem_.v_ring.release(v_, lane_);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) o[column / 2 + i] += sums[i];
  }

  /// Makes the next products with V a tile's first, which overwrite O, or are added to 0.
  __device__ __forceinline__ void begin_outputs(Outputs& o) {
    if constexpr (D::kClearsOutputs) {
#pragma unroll
      for (float& sum : o) sum = 0.0f;
    } else {
      accumulate_ = 0;
    }
  }

  /// Sets weights := next, once the products that read the weights are done. The xor with 0 is an instruction
  /// that ptxas does not take for a copy. For a copy it would give both the same registers, and serialise the
  /// products (C7513).
  __device__ __forceinline__ void replace(Weights& weights, const Weights& next) const {
#pragma unroll
    for (int i = 0; i < kShape.block_n / D::kStepKeys; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        asm volatile("xor.b32 %0, %1, %2;" : "=r"(weights[i][j]) : "r"(next[i][j]), "r"(p_.zero));
      }
    }
  }

  /// Computes S of a tile's first KV block, and its weights.
  __device__ __forceinline__ void start(Scores& s, Outputs& o, Weights& weights, const WorkItem& item) {
    begin_outputs(o);
    if constexpr (kShape.int8_qk) read_query_scales(item);
    await_k();
    Sums sums;
    issue_scores(s, sums, q_tile(), k_tile());
    describe_tile(item);
    const BlockKeys seen = visibility().seen(n_);
    hopper::wgmma_wait<0>();
    take_scores<true>(s, sums, false);
    softmax_.begin<D::kMath>(weights, s, score_factor(), seen);
  }

  /// Computes the last O += P V of a tile and stores its rows.
  __device__ __forceinline__ void finish(Scores& s, Outputs& o, Weights& weights) {
    if constexpr (D::kTwoLevels) {
      add_block(s, o, weights);
    } else {
      smem_.v_ring.await_full(v_);
      issue_outputs(o, weights, v_tile());
      await_outputs(o);
    }
    store_rows<kShape>(p_, own_rows(), thread_row(), o, softmax_, out_factor(), lane_);
  }

  /// Issues S of the next KV block and O += P V of the previous one, in this warpgroup's turn.
  __device__ __forceinline__ void issue_step(Scores& s, Sums& sums, Outputs& o, Weights& weights) {
    await_k();
    const QTile q = q_tile();
    const KTile k = k_tile();
    const VTile v = v_tile();
    turn_.wait();
    issue_scores(s, sums, q, k);
    smem_.v_ring.await_full(v_);
    issue_outputs(o, weights, v);
    turn_.pass();
  }

  /// One step: S of the tile's next KV block, O += P V of the previous one, whose weights are in `weights`,
  /// and the next block's weights, to `next`. If the two are different registers (kTwoWeights), softmax runs
  /// beside the products with V. With kTwoLevels nothing of a warpgroup runs beside its own products. Returns true where
  /// the next weights are too heavy: then move() must follow.
  __device__ __forceinline__ bool step(Scores& s, Outputs& o, Weights& weights, Weights& next) {
    --n_;
    const bool plain = is_plain();
    Sums sums;
    if constexpr (D::kTwoLevels) {
      add_block(s, o, weights);
      await_k();
      issue_scores(s, sums, q_tile(), k_tile());
      hopper::wgmma_wait<0>();
    } else {
      issue_step(s, sums, o, weights);
      hopper::wgmma_wait<1>();  // waits for the scores
    }
    take_scores<false>(s, sums, plain);
    if constexpr (!D::kTwoLevels && !D::kTwoWeights) await_outputs(o);
    return softmax_.add<D::kMath>(next, s, score_factor());
  }

  /// Moves references, and with them the weights of block n_. Sums over previous blocks shrink by `shrink`.
  __device__ __forceinline__ void move(const Scores& s, Weights& weights, float (&shrink)[2]) {
    softmax_.move<D::kMath>(weights, s, score_factor(), shrink,
                            [&](int h) { return visibility().sees_few(h, n_); });
  }

  /// A step with two sets of weights, to its end.
  __device__ __forceinline__ void whole_step(Scores& s, Outputs& o, Weights& weights, Weights& next) {
    const bool moves = step(s, o, weights, next);
    float shrink[2];
    if (__builtin_expect(moves, 0)) move(s, next, shrink);
    hopper::pin(next);
    await_outputs(o);
    if (__builtin_expect(moves, 0)) rescale(o, shrink);
  }

  /// All steps of a tile after its first KV block, with one set of weights. The inner loop has no code of move(), so that
  /// its instructions follow each other.
  __device__ __forceinline__ void run_steps(Scores& s, Outputs& o, Weights& weights) {
    while (n_ > n_begin_) {
      bool moves;
      do {
        moves = step(s, o, weights, weights);
      } while (!moves && n_ > n_begin_);
      if (moves) {
        float shrink[2];
        move(s, weights, shrink);
        rescale(o, shrink);
      }
    }
  }

  /// All steps of a tile after its first KV block. With kTwoWeights there are two copies of the step, between
  /// which weights and next change places. Short tiles have one copy and replace(), for the sake of the
  /// instruction cache.
  __device__ __forceinline__ void run_tile(Scores& s, Outputs& o, Weights& weights) {
    if constexpr (!D::kTwoWeights) {
      run_steps(s, o, weights);
    } else {
      Weights next;
      if constexpr (kShape.short_tiles) {
        while (n_ > n_begin_) {
          whole_step(s, o, weights, next);
          replace(weights, next);
        }
      } else {
        while (n_ > n_begin_) {
          whole_step(s, o, weights, next);
          if (n_ == n_begin_) {
            replace(weights, next);
            return;
          }
          whole_step(s, o, next, weights);
        }
      }
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const Turn<kShape> turn_;
  const int lane_;
  const int first_row_;   ///< first row of the warpgroup in the tile
  const int thread_row_;  ///< see thread_row()
  hopper::RingPlace<kShape.q_stages> q_;
  hopper::RingPlace<D::kKStages> k_;
  hopper::RingPlace<D::kVStages> v_;
  int n_;               ///< KV block of the last scores
  int n_begin_;         ///< last KV block of their tile that this warpgroup computes
  int accumulate_ = 0;  ///< 0: the next products with V overwrite O
  float score_factor_;  ///< of the current tile, with e4m3_kv and without softcap
  [[no_unique_address]] std::conditional_t<kShape.int8_qk, Int8State, Nothing> int8_;
  Visibility<kShape> visibility_;
  OnlineSoftmax softmax_;
};

}  // namespace attnbench::sm90_prefill
