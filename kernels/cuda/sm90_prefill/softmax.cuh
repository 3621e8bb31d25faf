// Online softmax of a warpgroup's scores, in registers, and the masks.
//
// A thread holds parts of two rows, h = 0 and 1, which lie 8 apart; the four lanes of a quad hold one row
// together. s[4 * j + 2 * h + c] is the score of row h against key 8 * j + 2 * (lane % 4) + c of the KV block
// (wgmma.cuh).
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/score.h"
#include "kernels/cuda/common/eight_bit.cuh"
#include "kernels/cuda/common/score.cuh"
#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_prefill {

/// Key of s[i] within the KV block, without the lane's part; a constant once loops are unrolled.
__device__ constexpr int key_of(int i) { return 8 * (i / 4) + i % 2; }
__device__ constexpr int row_of(int i) { return i / 2 % 2; }

/// Masks keys from end[h] on, which counts from the KV block's first key, less the lane's part 2 * (lane %
/// 4). It selects, because masked scores may be NaN.
template <int kCount>
__device__ __forceinline__ void mask_from(float (&s)[kCount], const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = key_of(i) < end[row_of(i)] ? s[i] : -INFINITY;
}

/// Masks keys before begin[h], likewise.
template <int kCount>
__device__ __forceinline__ void mask_before(float (&s)[kCount], const int (&begin)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = key_of(i) >= begin[row_of(i)] ? s[i] : -INFINITY;
}

/// Up to which key of a KV block rows see it.
struct BlockKeys {
  int end[2];     ///< for this thread's rows, less the lane's part
  int all_until;  ///< up to here all rows of the warp see the keys; the same in all lanes
  int until;      ///< up to here some row of the warp sees the keys
  bool few[2];    ///< whether these rows see so few keys that later blocks will likely have greater scores
};

/// Factors of the scores of a thread's two rows, where rows have scales of their own.
struct RowFactors {
  float of_row[2];
};

/// The factor of row h: its own, or one for all rows.
__device__ __forceinline__ float factor_of(const RowFactors& factors, int h) { return factors.of_row[h]; }
__device__ __forceinline__ float factor_of(float factor, int) { return factor; }

/// State of two rows: an offset in base 2, and the sum of weights 2^(factor * s + offset) of this lane's keys, factor > 0.
/// `Factor` is float or RowFactors. The offset makes weights relative to a reference score.
///
/// The reference need not be the greatest score: any that keeps weights from overflowing gives the same
/// quotient. So it is the greatest score of the first block in which the row sees a key, and moves only when
/// a block's weights come out too heavy. That spares nearly every block the search for its maximum, the
/// exchange between lanes and the rescaling of O. Each row decides by its own scores alone.
struct OnlineSoftmax {
  /// Most that a lane's weights of a row and KV block may sum to; a row with more is *heavy*. 1,024 is far below
  /// the greatest fp16; 448 is the greatest e4m3, so no weight exceeds it.
  template <DType kType>
  static constexpr float kMostOfLane = kType == DType::kE4m3 ? 448.0f : 1024.0f;
  /// Log2 of the weight of the reference, and of one that is the greatest of few scores.
  template <DType kType>
  static constexpr float kLift = kType == DType::kE4m3 ? kE4m3Lift : 0;
  template <DType kType>
  static constexpr float kLiftOfFew = kType == DType::kE4m3 ? kE4m3LiftOfFew : 0;

  /// Least that the reference of a heavy row moves, in base 2. In e4m3 a row may be heavy by many equal weights, and
  /// would stay so, block for block.
  template <DType kType>
  static constexpr float kLeastMove = kType == DType::kE4m3 ? 1 : 0;

  /// kLift or kLiftOfFew, less factor * reference, and less what the reference moved further; inf while the row has
  /// seen no key
  float offset[2] = {INFINITY, INFINITY};
  float sum[2] = {0.0f, 0.0f};
  float block_sum[2];  ///< this lane's weights of the last KV block

  /// Turns the scores of a tile's first KV block into weights. Rows see the keys below `seen`, and the scores
  /// are masked here. Keys that no row of the warp sees cost nothing; in a causal tile these are half of the
  /// first block.
  template <DType kType, int kSteps, int kCount, class Factor>
  __device__ __forceinline__ void begin(uint32_t (&weights)[kSteps][4], float (&s)[kCount], Factor factor,
                                        const BlockKeys& seen) {
    float block_max[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
#pragma unroll
    for (int g = 0; g < kCount; g += kGroup) {
      if (2 * g >= seen.until) continue;
      if (2 * (g + kGroup) > seen.all_until) {
#pragma unroll
        for (int i = g; i < g + kGroup && i < kCount; ++i) {
          s[i] = key_of(i) < seen.end[row_of(i)] ? s[i] : -INFINITY;
        }
      }
#pragma unroll
      for (int i = g; i < g + kGroup && i < kCount; ++i) {
        block_max[row_of(i)][i % 2] = fmaxf(block_max[row_of(i)][i % 2], s[i]);
      }
    }
    float usable[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float block = hopper::quad_reduce(fmaxf(block_max[h][0], block_max[h][1]),
                                              [](float a, float b) { return fmaxf(a, b); });
      offset[h] = offset_of<kType>(block, factor_of(factor, h), seen.few[h]);
      usable[h] = offset[h] == INFINITY ? 0.0f : offset[h];
    }
    float part[2][2] = {};
#pragma unroll
    for (int g = 0; g < kCount; g += kGroup) {
      if (2 * g < seen.until) {
#pragma unroll
        for (int i = g; i < g + kGroup && i < kCount; i += 2) {
          const int h = row_of(i);
          const float low = hopper::exp2_approx(fmaf(s[i], factor_of(factor, h), usable[h]));
          const float high = hopper::exp2_approx(fmaf(s[i + 1], factor_of(factor, h), usable[h]));
          part[h][0] += low;
          part[h][1] += high;
          pack_weights<kType>(weights, i, low, high);
        }
      } else {
#pragma unroll
        for (int i = g; i < g + kGroup && i < kCount; i += 2) pack_weights<kType>(weights, i, 0.0f, 0.0f);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = part[h][0] + part[h][1];
  }

  /// Turns the scores of a further KV block into weights, and adds these to `sum`. Returns true, in the whole warp, where
  /// a row of it is heavy. Then nothing is added, and move() must follow.
  template <DType kType, int kSteps, int kCount, class Factor>
  __device__ __forceinline__ bool add(uint32_t (&weights)[kSteps][4], const float (&s)[kCount],
                                      Factor factor) {
    weigh<kType>(weights, s, factor, offset, block_sum);
    if (__builtin_expect(__any_sync(~0u, is_heavy<kType>(0) || is_heavy<kType>(1)), 0)) return true;
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] += block_sum[h];
    return false;
  }

  /// Does what add() left undone, after moving the references of heavy rows. The caller multiplies by `shrink` what was
  /// summed over previous blocks. `sees_few(h)` is asked of a row that has seen no key before: as BlockKeys::few.
  template <DType kType, int kSteps, int kCount, class Factor, class Few>
  __device__ __forceinline__ void move(uint32_t (&weights)[kSteps][4], const float (&s)[kCount],
                                       Factor factor, float (&shrink)[2], Few sees_few) {
    const bool heavy[2] = {is_heavy<kType>(0), is_heavy<kType>(1)};
    float usable[2];
    rebase<kType>(s, factor, heavy, usable, shrink, sees_few);
    weigh<kType>(weights, s, factor, usable, block_sum);
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = __fadd_rn(__fmul_rn(sum[h], shrink[h]), block_sum[h]);
  }

  /// Ends the rows: 1 / sum over the quad, 0 where a row saw no key, and the natural LSE. `sink` is a key
  /// without a value, -inf for none. It comes last because the row's keys may weigh far less: relative to the
  /// sink, their fp16 weights would be subnormal.
  __device__ __forceinline__ void finish(float (&normaliser)[2], float (&lse)[2],
                                         const float (&sink)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = hopper::quad_reduce(sum[h], [](float a, float b) { return a + b; });
      if (sink[h] != -INFINITY) total += hopper::exp2_approx(fmaf(sink[h], kLog2E, offset[h]));
      const bool empty = total == 0.0f;  // the key of the reference alone weighs 1 or more; NaN stays NaN
      normaliser[h] = empty ? 0.0f : hopper::reciprocal_approx(total);
      lse[h] = empty ? -INFINITY : (__log2f(total) - offset[h]) * kLn2;
      // No key seen, or keys of no weight beside the sink.
      if (total == INFINITY) lse[h] = sink[h];
    }
  }

 private:
  /// NaN counts as heavy: rows without a reference get NaN.
  template <DType kType>
  __device__ __forceinline__ bool is_heavy(int h) const {
    return !(block_sum[h] <= kMostOfLane<kType>);
  }

  /// Rounds the weights of scores i and i + 1 to kType, and puts them where the product with V wants them. In
  /// e4m3 a word holds two pairs: those of keys 8 further on in its upper half.
  template <DType kType, int kSteps>
  __device__ __forceinline__ static void pack_weights(uint32_t (&weights)[kSteps][4], int i, float low,
                                                      float high) {
    if constexpr (kType == DType::kE4m3) {
      uint32_t& word = weights[i / 16][i / 8 % 2 * 2 + row_of(i)];
      const uint32_t pair = hopper::pack_pair_e4m3(low, high);
      word = i / 4 % 2 == 0 ? pair : word | pair << 16;
    } else {
      weights[i / 8][i % 8 / 2] = hopper::pack_pair<kType>(low, high);
    }
  }

  /// The offset of the reference `score`, which is the greatest of `few` scores or of many. Where an expression is
  /// written out as one instruction, as here, the compiler has no choice, and instances with other tiles give the same
  /// bits.
  template <DType kType>
  __device__ __forceinline__ static float offset_of(float score, float factor, bool few) {
    return fmaf(-score, factor, few ? kLiftOfFew<kType> : kLift<kType>);
  }

  static constexpr int kGroup = 16;  ///< scores of a thread for 32 keys

  /// Computes weights relative to the reference behind `offsets`, rounded in pairs to the A operands of the
  /// product with V (wgmma.cuh), and their sum before rounding.
  template <DType kType, int kSteps, int kCount, class Factor>
  __device__ __forceinline__ void weigh(uint32_t (&weights)[kSteps][4], const float (&s)[kCount],
                                        Factor factor, const float (&offsets)[2], float (&sums)[2]) const {
    float part[2][2];
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const int h = row_of(i);
      const float low = hopper::exp2_approx(fmaf(s[i], factor_of(factor, h), offsets[h]));
      const float high = hopper::exp2_approx(fmaf(s[i + 1], factor_of(factor, h), offsets[h]));
      part[h][0] = i < 4 ? low : part[h][0] + low;
      part[h][1] = i < 4 ? high : part[h][1] + high;
      pack_weights<kType>(weights, i, low, high);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) sums[h] = part[h][0] + part[h][1];
  }

  /// Moves the reference of the rows that some lane calls heavy to the greatest score so far, or a little further
  /// (kLeastMove). `usable` receives the offsets, 0 where a row has none yet. Older weights shrink by `shrink`.
  template <DType kType, int kCount, class Factor, class Few>
  __device__ __forceinline__ void rebase(const float (&s)[kCount], Factor factor, const bool (&heavy)[2],
                                         float (&usable)[2], float (&shrink)[2], Few sees_few) {
    float block_max[2][2] = {{s[0], s[1]}, {s[2], s[3]}};  // two chains per row
#pragma unroll
    for (int i = 4; i < kCount; ++i) {
      block_max[row_of(i)][i % 2] = fmaxf(block_max[row_of(i)][i % 2], s[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float block = hopper::quad_reduce(fmaxf(block_max[h][0], block_max[h][1]),
                                              [](float a, float b) { return fmaxf(a, b); });
      const bool moves =
          hopper::quad_reduce(heavy[h] ? 1.0f : 0.0f, [](float a, float b) { return a + b; }) > 0.0f;
      const float previous = offset[h];
      if (moves)
        offset[h] = fminf(previous - kLeastMove<kType>,
                          offset_of<kType>(block, factor_of(factor, h), previous == INFINITY && sees_few(h)));
      // No key seen yet: all weights become 2^-inf = 0, not 2^(inf - inf).
      usable[h] = offset[h] == INFINITY ? 0.0f : offset[h];
      shrink[h] = moves ? hopper::exp2_approx(usable[h] - previous) : 1.0f;
    }
  }
};

/// Multiplies sums under the old references, so that they are relative to the new ones.
template <int kCount>
__device__ __forceinline__ void rescale(float (&o)[kCount], const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] = __fmul_rn(o[i], shrink[row_of(i)]);
}

}  // namespace attnbench::sm90_prefill
