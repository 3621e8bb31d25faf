// The consumer warps. Each computes scores, softmax and output for its own tokens of every tile.
#pragma once

#include "kernels/cuda/common/eight_bit.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90_decode/epilogue.cuh"
#include "kernels/cuda/sm90_decode/seen_keys.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// One warp: 16 rows (row tile warp / kTokenGroups) against kWarpTokens tokens of each tile (token group warp
/// % kTokenGroups). Warps meet only at the end of a segment.
template <Shape kShape>
class Consumer {
  using D = Derived<kShape>;
  static constexpr int kSteps = D::kWarpTokens / 16;   ///< steps of 16 tokens, depth of a product with V
  static constexpr int kDepth = kShape.head_dim / 16;  ///< steps of 16 channels, depth of a product with K
  static constexpr DType kMath = D::kMathType;
  static constexpr int kKvRowBytes = D::kKvChunkBytes;
  /// Q stays in registers where they suffice.
  static constexpr bool kHoldQ = kShape.head_dim == 64 || (kShape.head_dim == 128 && kShape.warps == 4);
  /// Accumulators per score, so that more products are in flight than one chain allows.
  static constexpr int kChains = kSteps == 1 ? 2 : 1;
  static constexpr float kLeastDescale = 1e-30f;

 public:
  __device__ __forceinline__ Consumer(const KernelParams& p, SharedMemory<kShape>& smem, int kv_head)
      : p_(p), smem_(smem), kv_head_(kv_head), lane_(threadIdx.x % 32) {
    const int warp = __shfl_sync(~0u, threadIdx.x / 32 - D::kFirstConsumerWarp, 0);  // the same in all lanes
    row_tile_ = warp / D::kTokenGroups;
    group_ = warp % D::kTokenGroups;

    // 16-byte unit u of row r lies at unit u ^ swizzle(r). For Q and V a lane addresses row lane % 16 and unit lane /
    // 16. For K it addresses row lane / 16 * 8 + lane % 8 and unit lane / 8 % 2.
    constexpr auto swizzle = [](int r) { return kKvRowBytes == hopper::kChunkBytes ? r % 8 : r / 2 % 4; };
    const int row = lane_ % 16;
    const int k_row = lane_ / 16 * 8 + lane_ % 8;
    const uint32_t unit = (lane_ / 16 ^ row % 8) * 16;
    q_offset_ = shared_address(smem.q) + row_tile_ * (16 * hopper::kChunkBytes) + row * hopper::kChunkBytes;
    q_unit_ = unit;
    if constexpr (kShape.eight_bit_kv) {
      q_offset_ = shared_address(smem.q) + (row_tile_ * 16 + lane_ / 4) * hopper::kChunkBytes;
      q_unit_ = (lane_ % 4 / 2 ^ lane_ / 4) * 16 + lane_ % 2 * 8;
    }
    kv_base_ = shared_address(smem.kv);
    chunk_stride_ = p.box_rows * kKvRowBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int token = group_ * D::kWarpTokens + step * 16;
      const uint32_t box =
          token / p.box_rows * p.box_rows * (D::kKvChunks * kKvRowBytes) + token % p.box_rows * kKvRowBytes;
      k_offset_[step] = box + k_row * kKvRowBytes;
      v_offset_[step] = box + row * kKvRowBytes;
    }
    k_unit_ = (lane_ / 8 % 2 ^ swizzle(k_row)) * 16;
    v_unit_ = (lane_ / 16 ^ swizzle(row)) * 16;
  }

  __device__ __forceinline__ void run() {
    for (;;) {
      smem_.q_ring.await_full(q_);
      const Item item = smem_.item[q_.stage()];
      if (item.num_splits == 0) {
        if constexpr (D::kSharesRows) merge_left();
        return;
      }
      begin(item);
      if constexpr (kHoldQ) {
        if (item.tile_begin < item.tile_end) load_q();
        smem_.q_ring.release(q_, lane_);
      }
      for (int tile = item.tile_begin; tile < item.tile_end; ++tile) add_tile(tile);
      if constexpr (!kHoldQ) smem_.q_ring.release(q_, lane_);
      q_.advance();

      if constexpr (D::kSharesRows) {
        if (item.num_splits > 1) note(item);
      }
      const MergePlace place{row_tile_, group_, lane_};
      finish_segment<kShape>(p_, smem_, item, kv_head_, scales_, RowResults<kShape>(place, o_, softmax_));
    }
  }

 private:
  /// Notes a split whose rows are to be merged at the end. Other warps see it after finish_segment().
  __device__ __forceinline__ void note(const Item& item) {
    if (threadIdx.x == 32 * D::kFirstConsumerWarp) smem_.left.item[left_] = item;
    ++left_;
  }

  __device__ __forceinline__ void merge_left() {
#pragma unroll 1
    for (int i = 0; i < left_; ++i) merge_shared_rows<kShape>(p_, smem_.left.item[i], kv_head_);
  }

  __device__ __forceinline__ static uint32_t shared_address(const void* address) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(address));
  }

  /// Clears the state and finds which keys this lane's rows see.
  __device__ __forceinline__ void begin(const Item& item) {
    softmax_ = OnlineSoftmax{};
    scales_ = {p_.tanh_factor, p_.score_factor, 1.0f};
    if constexpr (kShape.eight_bit_kv && !kShape.int8_kv) {
      const AttentionParams& a = p_.attention;
      float k = a.k_descale[item.b * a.k_descale_stride_outer + kv_head_ * a.k_descale_stride_head];
      if (__builtin_expect(has_e4m3_queries(), 0)) {
        k *= a.q_descale[item.b * a.q_descale_stride_outer + kv_head_ * a.q_descale_stride_head];
      }
      // The softmax requires a factor above 0. So the sign of the descales goes into q, and 0 becomes kLeastDescale.
      q_sign_ = k < 0.0f ? 0x80008000u : 0;
      float size = fabsf(k) < kLeastDescale ? kLeastDescale : fabsf(k);  // NaN stays NaN
      if (item.tile_begin >= item.tile_end) size = 1.0f;  // the unused descale may be NaN and must not count
      (p_.tanh_factor != 0.0f ? scales_.tanh : scales_.score) *= size;
      scales_.out = a.v_descale[item.b * a.v_descale_stride_outer + kv_head_ * a.v_descale_stride_head];
    }
#pragma unroll
    for (int n = 0; n < kShape.head_dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] = 0.0f;
    }
    seen_ = find_seen_keys(p_, item, row_tile_ * 16 + lane_ / 4, 8);
    expired_ = visible_keys_of_sequence(p_.window_left, item.q_len, item.k_len).begin;
  }

  /// Address in step `step` of a row. A step is two 16-byte units; `unit` is the byte offset of the lane's
  /// one in step 0.
  __device__ __forceinline__ static uint32_t at(uint32_t row, uint32_t unit, uint32_t chunk_stride,
                                                int step) {
    return row + step / 4 * chunk_stride + (unit ^ step % 4 * 32);
  }

  __device__ __forceinline__ bool has_e4m3_queries() const {
    return !kShape.int8_kv && p_.q_chunks < D::kQChunks;
  }

  __device__ __forceinline__ void load_q() {
    const uint32_t row = q_offset_ + q_.stage() * D::kQBytes;
    if (kShape.eight_bit_kv && __builtin_expect(has_e4m3_queries(), 0)) {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) load_e4m3_q_step(q_operand_[k], row, k);
      return;
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) load_16_bit_q_step(q_operand_[k], row, k);
  }

  /// Loads the operand of channels 16 * step .. 16 * step + 15 of the warp's rows. With 8-bit keys a lane has
  /// the channels in the order in which multiply_k() has those of the keys.
  __device__ __forceinline__ void load_q_step(uint32_t (&operand)[4], uint32_t row, int step) const {
    if (kShape.eight_bit_kv && __builtin_expect(has_e4m3_queries(), 0)) {
      load_e4m3_q_step(operand, row, step);
    } else {
      load_16_bit_q_step(operand, row, step);
    }
  }

  /// The same of queries in e4m3. Code for them stands apart, so that a launch without them does not fetch it.
  __device__ __forceinline__ void load_e4m3_q_step(uint32_t (&operand)[4], uint32_t row, int step) const {
    const uint32_t unit = (step % 8 ^ lane_ / 4) * 16 + lane_ % 4 * 4;  // 16 channels are one
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t word =
          hopper::load_shared_word(row + h * 8 * hopper::kChunkBytes + step / 8 * D::kQChunkBytes + unit);
      operand[h] = hopper::from_e4m3<0>(word) ^ q_sign_;
      operand[2 + h] = hopper::from_e4m3<1>(word) ^ q_sign_;
    }
  }

  __device__ __forceinline__ void load_16_bit_q_step(uint32_t (&operand)[4], uint32_t row, int step) const {
    if constexpr (!kShape.eight_bit_kv) {
      hopper::load_matrices(operand, at(row, q_unit_, D::kQChunkBytes, step));
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t pair[2];
        hopper::load_shared(pair, at(row + h * 8 * hopper::kChunkBytes, q_unit_, D::kQChunkBytes, step));
        operand[h] = hopper::to_fp16<kShape.dtype>(pair[0]) ^ q_sign_;
        operand[2 + h] = hopper::to_fp16<kShape.dtype>(pair[1]) ^ q_sign_;
      }
    }
  }

  __device__ __forceinline__ void add_tile(int tile) {
    float s[2 * kSteps][4];
    smem_.kv_ring.await_full(kv_);
    multiply_k(s);
    smem_.kv_ring.release(kv_, lane_);
    kv_.advance();
    if constexpr (kShape.int8_kv) multiply_key_scales(s);

    if (p_.tanh_factor != 0.0f) hopper::apply_tanh(s, scales_.tanh);
    const int first = tile * kShape.tile_tokens + group_ * D::kWarpTokens;
    if (seen_.all.lacks(first, D::kWarpTokens)) mask(s, first);
    float shrink[2];
    softmax_.update(s, scales_.score, shrink);
    uint32_t weights[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&pair)[4] = s[2 * step + j / 2];
        weights[step][j] = hopper::pack_pair<kMath>(pair[j % 2 * 2], pair[j % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int n = 0; n < kShape.head_dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o_[n][i] *= shrink[i / 2];
    }

    smem_.kv_ring.await_full(kv_);
    if constexpr (!kShape.int8_kv) {  // int8 has no NaN
      if (__builtin_expect(tile * kShape.tile_tokens < expired_, 0)) clear_expired(first);
    }
    add_product_v(weights);
    smem_.kv_ring.release(kv_, lane_);
    kv_.advance();
  }

  /// Multiplies the scores by the scales of their keys. Those of keys that no row sees may be NaN; mask() comes
  /// later and selects.
  __device__ __forceinline__ void multiply_key_scales(float (&s)[2 * kSteps][4]) {
    KeyScales<kShape>& scales = smem_.key_scales;
    scales.ring.await_full(key_scales_);
    const uint32_t address =
        shared_address(scales.scale[key_scales_.stage()] + group_ * D::kWarpTokens + 2 * (lane_ % 4));
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      uint32_t pair[2];
      hopper::load_shared(pair, address + i * 8 * static_cast<uint32_t>(sizeof(float)));
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][c] *= __uint_as_float(pair[c % 2]);
    }
    scales.ring.release(key_scales_, lane_);
    key_scales_.advance();
  }

  /// Values 2 * kHalf and 2 * kHalf + 1 of the four 8-bit values in `word` as fp16.
  template <int kHalf>
  __device__ __forceinline__ static uint32_t widen(uint32_t word) {
    if constexpr (kShape.int8_kv) return hopper::from_int8<2 * kHalf, 2 * kHalf + 1>(word);
    return hopper::from_e4m3<kHalf>(word);
  }

  /// Values kParity and kParity + 2.
  template <int kParity>
  __device__ __forceinline__ static uint32_t widen_alternate(uint32_t word) {
    if constexpr (kShape.int8_kv) return hopper::from_int8<kParity, kParity + 2>(word);
    return hopper::from_e4m3<kParity>(__byte_perm(word, 0, 0x3120));
  }

  /// s = Q K^T.
  __device__ __forceinline__ void multiply_k(float (&s)[2 * kSteps][4]) {
    const uint32_t slot = kv_base_ + kv_.stage() * D::kSlotBytes;
    const uint32_t q_row = q_offset_ + q_.stage() * D::kQBytes;
    float chain[kChains][2 * kSteps][4] = {};
    if constexpr (kShape.eight_bit_kv) {
#pragma unroll
      for (int k = 0; k < kDepth; k += 2) {
#pragma unroll
        for (int half = 0; !kHoldQ && half < 2; ++half) load_q_step(q_operand_[half], q_row, k + half);
        const uint32_t(&q0)[4] = q_operand_[kHoldQ ? k : 0];
        const uint32_t(&q1)[4] = q_operand_[kHoldQ ? k + 1 : 1];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          uint32_t keys[4];  // words of 4 channels: tokens 0..7, channels 0..15, 16..31; then tokens 8..15
          hopper::load_matrices(keys, at(slot + k_offset_[step], k_unit_, chunk_stride_, k / 2));
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            float(&d)[4] = chain[k / 2 % kChains][2 * step + n];
            hopper::mma_m16n8k16<kMath>(d, q0, widen<0>(keys[2 * n]), widen<1>(keys[2 * n]));
            hopper::mma_m16n8k16<kMath>(d, q1, widen<0>(keys[2 * n + 1]), widen<1>(keys[2 * n + 1]));
          }
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < kDepth; ++k) {
        if constexpr (!kHoldQ) load_q_step(q_operand_[0], q_row, k);
        const uint32_t(&q)[4] = q_operand_[kHoldQ ? k : 0];
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          uint32_t keys[4];  // tokens 0..7, both halves of the depth; then tokens 8..15
          hopper::load_matrices(keys, at(slot + k_offset_[step], k_unit_, chunk_stride_, k));
          hopper::mma_m16n8k16<kMath>(chain[k % kChains][2 * step], q, keys[0], keys[1]);
          hopper::mma_m16n8k16<kMath>(chain[k % kChains][2 * step + 1], q, keys[2], keys[3]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[n][i] = kChains == 1 ? chain[0][n][i] : chain[0][n][i] + chain[kChains - 1][n][i];
    }
  }

  /// o += P V. With 8-bit values the columns of a product are every other channel of 16 (see o_).
  __device__ __forceinline__ void add_product_v(const uint32_t (&weights)[kSteps][4]) {
    const uint32_t slot = kv_base_ + kv_.stage() * D::kSlotBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kShape.eight_bit_kv) {
#pragma unroll
        for (int c = 0; c < kDepth; c += 2) {
          uint32_t values[4];  // tokens 0..7 and 8..15 of channels 0..15; then of channels 16..31
          hopper::load_matrices_transposed(values, at(slot + v_offset_[step], v_unit_, chunk_stride_, c / 2));
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            // A word holds two tokens of two channels as [token][channel]; an operand is two tokens of one.
            const uint32_t low = values[2 * half], high = values[2 * half + 1];
            hopper::mma_m16n8k16<kMath>(o_[2 * (c + half)], weights[step], widen_alternate<0>(low),
                                        widen_alternate<0>(high));
            hopper::mma_m16n8k16<kMath>(o_[2 * (c + half) + 1], weights[step], widen_alternate<1>(low),
                                        widen_alternate<1>(high));
          }
        }
      } else {
#pragma unroll
        for (int c = 0; c < kDepth; ++c) {
          uint32_t values[4];  // channels 0..7, both halves of the tokens; then channels 8..15
          hopper::load_matrices_transposed(values, at(slot + v_offset_[step], v_unit_, chunk_stride_, c));
          hopper::mma_m16n8k16<kMath>(o_[2 * c], weights[step], values[0], values[1]);
          hopper::mma_m16n8k16<kMath>(o_[2 * c + 1], weights[step], values[2], values[3]);
        }
      }
    }
  }

  /// Zeroes the values of this warp's tokens, from `first` on, that no query of the sequence sees. They may
  /// be NaN, which a weight of 0 does not cancel.
  __device__ __forceinline__ void clear_expired(int first) const {
    const uint32_t slot = kv_base_ + kv_.stage() * D::kSlotBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // v_offset_ is of row lane % 16: each half of the warp clears half of the row.
      if (first + step * 16 + lane_ % 16 >= expired_) continue;
      const uint32_t row = slot + v_offset_[step] + lane_ / 16 * (kKvRowBytes / 2);
#pragma unroll 1
      for (int chunk = 0; chunk < D::kKvChunks; ++chunk) {
#pragma unroll
        for (int unit = 0; unit < kKvRowBytes / 32; ++unit) {
          asm volatile(
              "st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(row + chunk * chunk_stride_ + unit * 16),
              "r"(0)
              : "memory");
        }
      }
    }
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);  // before the copy that fills the slot again
    if constexpr (kShape.row_tiles > 1) {                   // warps that share these tokens clear them too
      hopper::named_barrier_sync(kConsumerBarrier, D::kConsumerThreads);
    } else {
      __syncwarp();
    }
  }

  /// Masks the keys that a row does not see.
  __device__ __forceinline__ void mask(float (&s)[2 * kSteps][4], int first) const {
#pragma unroll
    for (int n = 0; n < 2 * kSteps; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + 8 * n + 2 * (lane_ % 4) + i % 2;
        s[n][i] = seen_.masked(s[n][i], i / 2, key);
      }
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int kv_head_;
  const int lane_;
  int row_tile_, group_;
  int left_ = 0;  ///< items in smem_.left
  // Shared-memory addresses: *_offset_ is this lane's row, *_unit_ its place in the swizzled row.
  uint32_t q_offset_, q_unit_, kv_base_, chunk_stride_, k_unit_, v_unit_;
  uint32_t k_offset_[kSteps], v_offset_[kSteps];
  hopper::RingPlace<kQStages> q_;
  hopper::RingPlace<kShape.slots> kv_;
  hopper::RingPlace<kScaleStages> key_scales_;

  SeenKeys seen_;
  int32_t expired_;      ///< leading keys of the sequence that none of its queries sees
  uint32_t q_sign_ = 0;  ///< flips the signs of a pair of q where the descales of q and K differ in sign
  Scales scales_;
  uint32_t q_operand_[kHoldQ ? kDepth : 2][4];
  float o_[kShape.head_dim / 8]
          [4];  ///< [n]: 8 channels; 8-bit KV: of 16 channels the even (n even) or odd ones
  OnlineSoftmax softmax_;
};

}  // namespace attnbench::sm90_decode
