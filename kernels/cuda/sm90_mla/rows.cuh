// The query rows of a block, and where their results go.
#pragma once

#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/last_arrival.cuh"
#include "kernels/cuda/common/named_barrier.cuh"
#include "kernels/cuda/common/partition.cuh"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90_mla/shape.cuh"

namespace attnbench::sm90_mla {

/// Barrier 0 is __syncthreads, and pairs of warps use others (shape.cuh).
inline constexpr int kConsumerBarrier = 5;

__device__ __forceinline__ void consumers_meet() {
  hopper::named_barrier_sync(kConsumerBarrier, kConsumerThreads);
}

/// The row tile of a block.
template <Shape kShape>
struct Place {
  int32_t line = blockIdx.x;
  int32_t kv_head;
  int32_t first_token;  ///< of the row tile, in the sequence
  int32_t first_head;   ///< of the row tile
  int32_t heads;        ///< of the row tile that are heads of the KV head: at most tile_heads

  __device__ __forceinline__ explicit Place(const KernelParams& p) {
    kv_head = p.by_row_tiles.divide(line);
    const int32_t row_tile = line - kv_head * p.row_tiles;
    const int32_t group = p.by_tiles_per_token.divide(row_tile);
    const int32_t head = (row_tile - group * p.tiles_per_token) * p.tile_heads;
    first_token = group * p.tile_tokens;
    first_head = kv_head * p.group + head;
    heads = min(p.tile_heads, p.group - head);
  }

  /// Rows from 0 on that may be in use.
  __device__ __forceinline__ int32_t rows(const KernelParams& p, const Item& item) const {
    return max(0, min(item.q_len - first_token, p.tile_tokens)) * p.tile_heads;
  }
};

/// A row of a row tile.
struct Row {
  int32_t token;  ///< in the sequence
  int32_t head;
  bool used;

  template <Shape kShape>
  __device__ __forceinline__ Row(const KernelParams& p, const Place<kShape>& place, const Item& item,
                                 int32_t row) {
    const int32_t t = p.by_tile_heads.divide(row);
    const int32_t h = row - t * p.tile_heads;
    token = place.first_token + t;
    head = place.first_head + h;
    used = t < p.tile_tokens && token < item.q_len && h < place.heads;
  }
};

/// The first row of the block's partial result of split `split` of an item.
template <Shape kShape>
__device__ __forceinline__ int64_t partial_row(const KernelParams& p, const Place<kShape>& place,
                                               const Item& item, int32_t split) {
  const int32_t partial = hopper::partial_of(item.first_part, item.first_partial, split);
  return (static_cast<int64_t>(place.line) * 2 * p.parts + partial) * p.partial_rows;
}

/// Index of the counters of an item's sequence.
template <Shape kShape>
__device__ __forceinline__ int32_t counter_of(const KernelParams& p, const Place<kShape>& place,
                                              const Item& item) {
  return place.line * 2 * p.parts + item.first_partial;
}

/// The two rows of a lane's accumulators, h = 0 and 1, 8 apart (wgmma.cuh): the keys that they see, and the
/// state of their softmax.
struct LaneRows {
  int32_t first;    ///< the row with h = 0, in the row tile
  int32_t seen[2];  ///< ends of the keys that they see
  int32_t all_see;  ///< the end of the keys that all rows of the warp see
  /// Weights are 2^(score_factor * score + offset); inf before the first key. Unlike in common/softmax.cuh it is rounded
  /// once, when it is set, and kept: LSE and merges use the same number, so its rounding cancels.
  float offset[2];
  float sum[2];  ///< sums of the weights of this lane's keys

  template <Shape kShape>
  __device__ __forceinline__ void begin(const KernelParams& p, const Place<kShape>& place, const Item& item,
                                        int32_t first_row) {
    first = first_row;
    int32_t all = item.k_len;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      offset[h] = INFINITY;
      sum[h] = 0.0f;
      const Row row(p, place, item, first + 8 * h);
      // Rows that are not used are treated like the last token's.
      seen[h] = window_keys(p.attention, min(row.token, item.q_len - 1), item.q_len, item.k_len).end;
      all = min(all, seen[h]);
    }
    all_see = __reduce_min_sync(~0u, all);
  }

  /// Sets scores of keys first_key, first_key + 1, ... that a row does not see to -inf.
  template <int kCount>
  __device__ __forceinline__ void hide(float (&s)[kCount], int first_key) const {
    if (first_key + kCount * 2 <= all_see) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int key = first_key + i / 4 * 8 + 2 * (static_cast<int>(threadIdx.x) % 4) + i % 2;
      s[i] = key < seen[i / 2 % 2] ? s[i] : -INFINITY;
    }
  }

  /// Log2 of the greatest weight: 256, far below the greatest fp16.
  static constexpr float kMostLog2Weight = 8;

  /// Lowers the offsets of rows that would have a greater weight. Most tiles have none, which spares them the search for
  /// a row's greatest score and the rescaling of O. Any offset gives the same quotient, up to rounding. `shrink`: factors for older
  /// weights. All lanes of the warp call it.
  template <int kCount>
  __device__ __forceinline__ void lower(const float (&s)[kCount], float score_factor, float (&shrink)[2]) {
    float greatest[2];  // of this lane
    bool heavy = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shrink[h] = 1.0f;
      float of_columns[2] = {s[2 * h], s[2 * h + 1]};
#pragma unroll
      for (int j = 1; j < kCount / 4; ++j) {
        of_columns[0] = fmaxf(of_columns[0], s[4 * j + 2 * h]);
        of_columns[1] = fmaxf(of_columns[1], s[4 * j + 2 * h + 1]);
      }
      greatest[h] = fmaxf(of_columns[0], of_columns[1]);
      heavy = heavy || fmaf(greatest[h], score_factor, offset[h]) > kMostLog2Weight;
    }
    if (!__any_sync(~0u, heavy)) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float of_row = hopper::quad_reduce(greatest[h], [](float a, float b) { return fmaxf(a, b); });
      if (!(fmaf(of_row, score_factor, offset[h]) > kMostLog2Weight)) continue;
      const float lowered = -of_row * score_factor;
      shrink[h] = hopper::exp2_approx(lowered - offset[h]);
      take(h, lowered, shrink[h]);
    }
  }

  /// Sets the offset of row h. `shrink`: the factor for older weights.
  __device__ __forceinline__ void take(int h, float lowered, float shrink) {
    offset[h] = lowered;
    sum[h] *= shrink;
  }

  /// The offset of row h; 0 where all scores are -inf, so that weights are 0 and not NaN.
  __device__ __forceinline__ float usable_offset(int h) const {
    return offset[h] == INFINITY ? 0.0f : offset[h];
  }
};

/// The operand of a step of a product with values: 16 keys.
using Weights = uint32_t[4];

template <DType kType, int kSteps>
__device__ __forceinline__ void pack_weights(const float (&s)[8 * kSteps], Weights (&weights)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = 8 * step + 4 * (j / 2) + 2 * (j % 2);
      weights[step][j] = hopper::pack_pair<kType>(s[i], s[i + 1]);
    }
  }
}

/// Leaves the operand of thread `thread` (0 .. 127) of a team for the other team. It lies in the order of registers.
template <int kSteps>
__device__ __forceinline__ void leave_weights(uint4 (*place)[32 * 4], int thread,
                                              const Weights (&weights)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    place[step][thread] = make_uint4(weights[step][0], weights[step][1], weights[step][2], weights[step][3]);
}

/// Takes an operand that leave_weights() left.
template <int kSteps>
__device__ __forceinline__ void take_weights(const uint4 (*place)[32 * 4], int thread,
                                             Weights (&weights)[kSteps]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint4 w = place[step][thread];
    weights[step][0] = w.x;
    weights[step][1] = w.y;
    weights[step][2] = w.z;
    weights[step][3] = w.w;
  }
}

/// Sums of the weights of a lane's rows over all keys: those of its team and of the other, which it meets by
/// `pair_meets`.
template <class Meets>
__device__ __forceinline__ void sums_of_teams(float (&exchange)[kTeams][kProductRows], const LaneRows& rows,
                                              int team, Meets pair_meets, float (&sum)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] = hopper::quad_reduce(rows.sum[h], [](float a, float b) { return a + b; });
    if (threadIdx.x % 4 == 0) exchange[team][rows.first + 8 * h] = sum[h];
  }
  pair_meets();
#pragma unroll
  for (int h = 0; h < 2; ++h) sum[h] = exchange[0][rows.first + 8 * h] + exchange[1][rows.first + 8 * h];
  pair_meets();  // sums are read
}

/// o := o * shrink, by rows. All lanes of the warp call it.
template <int kCount>
__device__ __forceinline__ void rescale(float (&o)[kCount], const float (&shrink)[2]) {
  // Most tiles lower no offset.
  if (!__any_sync(~0u, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= shrink[i / 2 % 2];
}

/// Writes O and LSE of a lane's rows: `normaliser` by row, and channels from `channel` on.
template <Shape kShape, int kCount>
__device__ __forceinline__ void write_rows(const KernelParams& p, const Place<kShape>& place,
                                           const Item& item, int32_t first_row, const float (&lse2)[2],
                                           const float (&normaliser)[2], const float (&o)[kCount],
                                           int channel) {
  const AttentionParams& a = p.attention;
  const int quad_lane = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Row row(p, place, item, first_row + 8 * h);
    if (!row.used) continue;
    const int64_t q_row = item.q_begin + row.token;
    uint16_t* out = static_cast<uint16_t*>(a.out) + out_offset(a, q_row, row.head) + channel + 2 * quad_lane;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      *reinterpret_cast<uint32_t*>(out + 8 * j) = hopper::pack_pair<kShape.dtype>(
          o[4 * j + 2 * h] * normaliser[h], o[4 * j + 2 * h + 1] * normaliser[h]);
    }
    if (channel == 0 && quad_lane == 0) a.lse[lse_offset(a, q_row, row.head)] = lse2[h] * kLn2;
  }
}

/// What normalises a row, and its LSE to base 2. No key: O = 0. NaN stays NaN.
__device__ __forceinline__ float normaliser_of(float sum) {
  return sum == 0.0f ? 0.0f : hopper::reciprocal_approx(sum);
}

/// A partial result of O lies in the order of registers, so that warps write and read whole lines: the four
/// accumulators j of lane l, of 16 rows from 16 * g on and team t, are float4 number
/// ((g * teams + t) * 32 + j) * 32 + l.

/// The first of this lane's float4 in the block's partial result of split `split`.
template <Shape kShape>
__device__ __forceinline__ float4* partial_out_of(const KernelParams& p, const Place<kShape>& place,
                                                  const Item& item, int32_t split, int32_t group, int team) {
  const int64_t first = partial_row(p, place, item, split) * (kValueChannels / 4);
  return reinterpret_cast<float4*>(p.partial_out) + first + (group * kTeams + team) * (32 * 32) +
         threadIdx.x % 32;
}

/// Arrivals at the counter of a sequence: its splits, and the blocks that have seen them all. So the counter is back
/// at 0 only when all have.
__device__ __forceinline__ uint32_t arrivals_of(const Item& item) { return 2 * item.num_splits; }

/// Says that the block's partial result of an item is complete. All consumers call it.
template <Shape kShape>
__device__ __forceinline__ void publish_partial(const KernelParams& p, const Place<kShape>& place,
                                                const Item& item) {
  consumers_meet();  // all have written
  if (threadIdx.x == 0) hopper::arrive(p.arrivals + counter_of(p, place, item), arrivals_of(item));
}

/// Ends an item: writes O and LSE, or leaves a partial result. All consumers call it. `sum` has the sums of
/// all keys' weights, `o` 256 channels from `channel` on.
template <Shape kShape>
__device__ __forceinline__ void write_item(const KernelParams& p, const Place<kShape>& place,
                                           const Item& item, const LaneRows& rows, const float (&sum)[2],
                                           const float (&o)[128], int channel) {
  float normaliser[2], lse2[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    normaliser[h] = normaliser_of(sum[h]);
    lse2[h] = hopper::lse2_of(-rows.offset[h], sum[h]);
  }
  if (item.num_splits == 1) {
    write_rows(p, place, item, rows.first, lse2, normaliser, o, channel);
    return;
  }
  const int32_t group = rows.first / 16;
  if (group * 16 < place.rows(p, item)) {
    float4* out = partial_out_of(p, place, item, item.split, group, channel / 256);
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      out[j * 32] = make_float4(o[4 * j] * normaliser[0], o[4 * j + 1] * normaliser[0],
                                o[4 * j + 2] * normaliser[1], o[4 * j + 3] * normaliser[1]);
    }
    if (channel == 0 && threadIdx.x % 4 == 0) {
      float* lse = p.partial_lse + partial_row(p, place, item, item.split) + rows.first;
      lse[0] = lse2[0];
      lse[8] = lse2[1];
    }
  }
  publish_partial(p, place, item);
}

}  // namespace attnbench::sm90_mla
