// The end of a segment: merges the results of the warps, and those of the splits, into O and LSE.
#pragma once

#include "kernels/common/addressing.h"
#include "kernels/cuda/common/last_arrival.cuh"
#include "kernels/cuda/common/named_barrier.cuh"
#include "kernels/cuda/common/sink.cuh"
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90_decode/handover.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// The named barrier of the consumers. Barrier 0 is __syncthreads, and the first ones belong to sm90_prefill
/// where both share a block.
inline constexpr int kConsumerBarrier = 8;

/// Factors of one segment.
struct Scales {
  float tanh;   ///< from a raw score to the argument of tanh (softcap): KernelParams::tanh_factor
  float score;  ///< from a raw score, or its tanh, to a logit in base 2
  float out;    ///< factor of O
};

/// Which rows and tokens of a segment a warp's registers hold.
struct MergePlace {
  int row_tile;
  int group;
  int lane;
};

/// Leaves the state of row `row` of a suffix, as store_row writes O and LSE.
template <int kCount>
__device__ __forceinline__ void store_suffix(const KernelParams& p, int64_t q_row, int32_t head, int channel,
                                             const float (&o)[kCount], float lse2, bool writes_lse) {
  static_assert(kCount == 4);
  const int64_t at = q_row * p.attention.num_heads_q + head;
  *reinterpret_cast<float4*>(p.suffix_out + at * p.attention.head_dim + channel) =
      make_float4(o[0], o[1], o[2], o[3]);
  if (writes_lse) p.suffix_sum[at] = make_float2(lse2, 1.0f);
}

/// Writes kCount neighbouring channels of O of row `row`, and its LSE if `writes_lse` (one lane's task). `o`
/// is normalised over the keys, and `lse2` is the base-2 LSE over the keys. The sink joins the denominator
/// here. Instances for suffixes leave a state instead.
template <Shape kShape, int kCount>
__device__ __forceinline__ void store_row(const KernelParams& p, const Item& item, int kv_head, int row,
                                          int channel, const float (&o)[kCount], float lse2,
                                          bool writes_lse) {
  const AttentionParams& a = p.attention;
  const int token = p.by_group.divide(row);
  const int32_t head = kv_head * p.group + (row - token * p.group);
  const int64_t q_row = item.q_begin + token;
  if constexpr (kShape.suffixes) {
    store_suffix(p, q_row, head, channel, o, lse2, writes_lse);
    return;
  }
  const float kept = a.features & kSinks ? hopper::join_sink(lse2, a.sinks[head] * kLog2E) : 1.0f;
  uint16_t* out = static_cast<uint16_t*>(a.out) + out_offset(a, q_row, head) + channel;
  uint32_t word[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i)
    word[i] = hopper::pack_pair<kShape.dtype>(o[2 * i] * kept, o[2 * i + 1] * kept);
  if constexpr (kCount == 2) {
    *reinterpret_cast<uint32_t*>(out) = word[0];
  } else {
    static_assert(kCount == 4);
    *reinterpret_cast<uint2*>(out) = make_uint2(word[0], word[1]);
  }
  if (writes_lse) a.lse[lse_offset(a, q_row, head)] = lse2 * kLn2;
}

/// Index of the partial result of split `split` of an item.
__device__ __forceinline__ int32_t partial_of_split(const KernelParams& p, const Item& item, int kv_head,
                                                    int split) {
  const int32_t step = p.split_every_unit ? 1 : kPartialStep;
  return kv_head * p.partials + (split == 0 ? item.first_partial : item.other_partial + split * step);
}

/// Merges every `step`-th row of a sequence from `first_row` on: its splits in their order, whichever block
/// arrived last. A warp takes a row at a time. Lane i holds kVector channels from i * kVector on, of each
/// kVector * 32. The code is kept short: a launch of a few microseconds runs it once, and waits for each
/// instruction that no cache holds.
template <Shape kShape>
__device__ __forceinline__ void merge_rows(const KernelParams& p, const Item& item, int kv_head, int rows,
                                           int first_row, int step) {
  using D = Derived<kShape>;
  constexpr int kVector = kShape.head_dim == 64 ? 2 : 4;
  constexpr int kVectors = kShape.head_dim / (32 * kVector);
  // Splits whose loads are in flight: as many as registers allow, at most 32.
  constexpr bool kManyRegisters = kShape.warps == 4 && kShape.blocks_per_sm == 1 && D::kOwnBlock;
  constexpr int kBatch = kManyRegisters ? splits_at_once(kShape.head_dim) : 8;
  const int lane = threadIdx.x % 32;
  const int32_t first_split_row = partial_of_split(p, item, kv_head, 0) * p.max_rows;
  const int32_t stride = (p.split_every_unit ? 1 : kPartialStep) * p.max_rows;
  const int32_t other_row =
      partial_of_split(p, item, kv_head, 1) * p.max_rows - stride;  // row of split s: other_row + s * stride

#pragma unroll 1
  for (int row = first_row + (threadIdx.x / 32 - D::kFirstConsumerWarp) * step; row < rows;
       row += D::kConsumerWarps * step) {
    float o[kVectors][kVector] = {};
    float sum = 0.0f, max = -INFINITY;
#pragma unroll 1
    for (int first = 0; first < item.num_splits; first += kBatch) {
      const int left = item.num_splits - first;
      const int mine = lane % kBatch;
      const int32_t lse_row = first + mine == 0 ? first_split_row : other_row + (first + mine) * stride;
      const float lse = mine < left ? hopper::load_l2(p.partial_lse + lse_row + row) : -INFINITY;

      float v[kBatch][kVectors][kVector];
      const float* next =
          p.partial_out + lane * kVector +
          static_cast<int64_t>((first == 0 ? first_split_row : other_row + first * stride) + row) *
              kShape.head_dim;
      const float* second = p.partial_out + lane * kVector +
                            static_cast<int64_t>(other_row + (first + 1) * stride + row) * kShape.head_dim;
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) hopper::load_l2(v[j][i], next + i * 32 * kVector);
        // Past the end the last split is loaded once more, with weight 0, so that the loop has no branches.
        if (j + 1 < left) next = j == 0 ? second : next + stride * kShape.head_dim;
      }

      float top = fmaxf(max, lse);
#pragma unroll
      for (int other = kBatch / 2; other > 0; other /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, other));
      const float base = reference_of(top);
      const float shrink = hopper::exp2_approx(max - base);
      const float weight = hopper::exp2_approx(lse - base);
      max = top;
      sum *= shrink;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
#pragma unroll
        for (int c = 0; c < kVector; ++c) o[i][c] *= shrink;
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const float w = __shfl_sync(~0u, weight, j);
        sum += w;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
#pragma unroll
          for (int c = 0; c < kVector; ++c) o[i][c] = fmaf(w, v[j][i][c], o[i][c]);
        }
      }
    }
    const float normaliser = sum == 0.0f ? 0.0f : hopper::reciprocal_approx(sum);
    const float lse2 = lse2_of(reference_of(max), sum);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
#pragma unroll
      for (int c = 0; c < kVector; ++c) o[i][c] *= normaliser;
      store_row<kShape>(p, item, kv_head, row, (i * 32 + lane) * kVector, o[i], lse2, i == 0 && lane == 0);
    }
  }
}

/// 16-byte unit `unit` of row `row` in SharedMemory::merge_out. Units are swizzled, because rows are a
/// multiple of 128 bytes apart and a warp writes eight rows at once.
template <int kChannels>
__device__ __forceinline__ float* merge_unit(float (*rows)[kChannels], int row, int unit) {
  return rows[row] + (unit ^ row % 8) * 4;
}

/// A warp's results of a segment, to be written to shared memory: O and softmax of the rows and tokens at
/// `place`.
template <Shape kShape>
class RowResults {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ RowResults(const MergePlace& place, const float (&o)[kShape.head_dim / 8][4],
                                        const OnlineSoftmax& softmax)
      : place_(place), o_(o), softmax_(softmax) {}

  /// Writes greatest scores and sums of weights.
  __device__ __forceinline__ void write_sums(SharedMemory<kShape>& smem) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = hopper::quad_reduce(softmax_.sum[h], [](float a, float b) { return a + b; });
      const int row = place_.row_tile * 16 + place_.lane / 4 + 8 * h;
      if (place_.lane % 4 == 0) {
        smem.merge_max[place_.group][row] = softmax_.max[h];
        smem.merge_sum[place_.group][row] = sum;
      }
    }
  }

  /// Writes O of the first `rows` rows: kMergeChannels channels from pass * kMergeChannels on.
  __device__ __forceinline__ void write_outputs(SharedMemory<kShape>& smem, int rows, int pass) const {
    constexpr int kChannels = D::kMergeChannels;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = place_.row_tile * 16 + place_.lane / 4 + 8 * h;
      if (row >= rows) continue;
#pragma unroll
      for (int n = 0; n < kChannels / 8; n += 2) {
        const float(&from)[4] = o_[pass * (kChannels / 8) + n];
        const float(&next)[4] = o_[pass * (kChannels / 8) + n + 1];
        if constexpr (kShape.eight_bit_kv) {
          // Columns of product n are the even channels of 16, those of product n + 1 the odd ones.
          float* unit = merge_unit(smem.merge_out[place_.group], row, 2 * n + place_.lane % 4);
          *reinterpret_cast<float4*>(unit) =
              make_float4(from[2 * h], next[2 * h], from[2 * h + 1], next[2 * h + 1]);
        } else {
          const int first = 2 * n + place_.lane % 4 / 2;
          const int inside = place_.lane % 2 * 2;
          float* unit = merge_unit(smem.merge_out[place_.group], row, first) + inside;
          *reinterpret_cast<float2*>(unit) = make_float2(from[2 * h], from[2 * h + 1]);
          unit = merge_unit(smem.merge_out[place_.group], row, first + 2) + inside;
          *reinterpret_cast<float2*>(unit) = make_float2(next[2 * h], next[2 * h + 1]);
        }
      }
    }
  }

 private:
  const MergePlace& place_;
  const float (&o_)[kShape.head_dim / 8][4];
  const OnlineSoftmax& softmax_;
};

/// Multiplies four channels of O from `channel` on by the scales of int8 V, one per (KV head, channel).
__device__ __forceinline__ void multiply_value_scales(const KernelParams& p, int kv_head, int channel,
                                                      float (&o)[4]) {
  const AttentionParams& a = p.attention;
  const float* const scales = a.v_descale + kv_head * a.v_descale_stride_head + channel;
#pragma unroll
  for (int c = 0; c < 4; ++c) o[c] *= __ldg(scales + c);
}

/// How many blocks share the merge of a sequence's rows: those of its first splits.
__device__ __forceinline__ int mergers_of(const Item& item, int rows) { return min(item.num_splits, rows); }

/// Arrivals at the counter of a sequence whose rows are shared: its splits, and the warps that have seen them all. So
/// the counter is back at 0 only when all have.
template <Shape kShape>
__device__ __forceinline__ int shared_arrivals_of(const Item& item, int rows) {
  return item.num_splits + min(rows, mergers_of(item, rows) * Derived<kShape>::kConsumerWarps);
}

/// Ends a segment. All consumer warps call it, each with its `results`, which are merged through shared
/// memory. Writes O and LSE, or a partial result. Partial results are merged by the block of the first split,
/// where there are few (handover.cuh); or by all blocks of the sequence, in merge_shared_rows(); or by the block that
/// writes the last.
///
/// Returns whether it merged partial results of other segments. The rows that it then wrote are complete once all
/// consumer warps meet again; those of a sequence that is one segment are complete at the return.
template <Shape kShape, class Results>
__device__ __forceinline__ bool finish_segment(const KernelParams& p, SharedMemory<kShape>& smem,
                                               const Item& item, int kv_head, const Scales& scales,
                                               const Results& results) {
  using D = Derived<kShape>;
  constexpr int kChannels = D::kMergeChannels;
  constexpr int kUnits = kChannels / 4;
  const int rows = min(item.q_len * p.group, p.max_rows);
  const int thread = threadIdx.x - 32 * D::kFirstConsumerWarp;  // thread number among the consumers
  const auto meet = [] { hopper::named_barrier_sync(kConsumerBarrier, D::kConsumerThreads); };
  const bool whole = item.num_splits == 1;
  const int64_t partial_row =
      static_cast<int64_t>(partial_of_split(p, item, kv_head, item.split)) * p.max_rows;

  results.write_sums(smem);
#pragma unroll
  for (int pass = 0; pass < kShape.head_dim / kChannels; ++pass) {
    if (pass > 0) meet();  // the previous pass has been read
    results.write_outputs(smem, rows, pass);
    meet();
    for (int i = thread; i < rows * kUnits; i += D::kConsumerThreads) {
      const int row = i / kUnits;
      const int unit = i % kUnits;
      float max = smem.merge_max[0][row];
#pragma unroll
      for (int g = 1; g < D::kTokenGroups; ++g) max = fmaxf(max, smem.merge_max[g][row]);
      const float reference = reference_of(max);
      float sum = 0.0f;
      float merged[4] = {};
#pragma unroll
      for (int g = 0; g < D::kTokenGroups; ++g) {
        const float weight = hopper::exp2_approx((smem.merge_max[g][row] - reference) * scales.score);
        const float4 part = *reinterpret_cast<const float4*>(merge_unit(smem.merge_out[g], row, unit));
        sum = fmaf(weight, smem.merge_sum[g][row], sum);
        merged[0] = fmaf(weight, part.x, merged[0]);
        merged[1] = fmaf(weight, part.y, merged[1]);
        merged[2] = fmaf(weight, part.z, merged[2]);
        merged[3] = fmaf(weight, part.w, merged[3]);
      }
      // No key: O = 0. NaN stays NaN.
      const float normaliser = sum == 0.0f ? 0.0f : hopper::reciprocal_approx(sum) * scales.out;
#pragma unroll
      for (int c = 0; c < 4; ++c) merged[c] *= normaliser;
      if constexpr (kShape.int8_kv) multiply_value_scales(p, kv_head, pass * kChannels + unit * 4, merged);
      float lse2 = lse2_of(reference * scales.score, sum);
      const int channel = pass * kChannels + unit * 4;
      const bool writes_lse = pass == 0 && unit == 0;
      if (whole) {
        store_row<kShape>(p, item, kv_head, row, channel, merged, lse2, writes_lse);
      } else if (D::kFirstWaits && item.first_partial < 0) {
        const int32_t first_part = item.other_partial / kPartialStep;
        const int32_t part = first_part + (item.split > 0 ? item.split : 1);
        const int64_t state_row = static_cast<int64_t>(kv_head * p.parts + part) * p.max_rows + row;
        const int64_t state = (state_row * kShape.head_dim + channel) / 4;
        const StatePlace place{p.state_out + 4 * state, p.state_lse + state};
        if (item.split > 0) {
          leave_state(place, merged, lse2);
        } else {
          const int64_t stride =
              static_cast<int64_t>(p.max_rows) * (kShape.head_dim / 4);  // states from one part to the next
          take_states(place, stride, item.num_splits - 1, merged, lse2);
          store_row<kShape>(p, item, kv_head, row, channel, merged, lse2, writes_lse);
          clear_states(place, stride, item.num_splits - 1);
        }
      } else {
        float* partial = p.partial_out + (partial_row + row) * kShape.head_dim + channel;
        *reinterpret_cast<float4*>(partial) = make_float4(merged[0], merged[1], merged[2], merged[3]);
        if (writes_lse) p.partial_lse[partial_row + row] = lse2;
      }
    }
  }
  // Now merge_out has been read, and may be written for the next segment. The partial result is complete.
  meet();
  if (whole || (D::kFirstWaits && item.first_partial < 0)) return false;

  // The barrier above orders every thread's share of the partial result before thread 0's release. The one
  // below orders its acquire before every thread's loads.
  uint32_t* const counter = p.counters + partial_of_split(p, item, kv_head, 0);
  if constexpr (D::kSharesRows) {
    if (thread == 0) hopper::arrive(counter, shared_arrivals_of<kShape>(item, rows));
    return false;
  }
  if (thread == 0) smem.is_last = hopper::arrive_last(counter, item.num_splits);
  meet();
  if (smem.is_last == 0) return false;
  merge_rows<kShape>(p, item, kv_head, rows, 0, 1);
  return true;
}

/// Merges this warp's share of the rows of a sequence, of which the block has left a split: rows are dealt to the
/// blocks of the first splits in turn, and in a block to its warps. All consumer warps call it when the block has left
/// all of its partial results, as their last work. So no wait is endless if all blocks run at once, which cooperative
/// launches guarantee.
template <Shape kShape>
__device__ __forceinline__ void merge_shared_rows(const KernelParams& p, const Item& item, int kv_head) {
  const int rows = min(item.q_len * p.group, p.max_rows);
  const int mergers = mergers_of(item, rows);
  const int warp = threadIdx.x / 32 - Derived<kShape>::kFirstConsumerWarp;
  if (item.split + warp * mergers >= rows) return;
  if (threadIdx.x % 32 == 0) {
    uint32_t* const counter = p.counters + partial_of_split(p, item, kv_head, 0);
    hopper::await_arrivals(counter, item.num_splits);
    hopper::arrive(counter, shared_arrivals_of<kShape>(item, rows));
  }
  __syncwarp();
  merge_rows<kShape>(p, item, kv_head, rows, item.split, mergers);
}

}  // namespace attnbench::sm90_decode
