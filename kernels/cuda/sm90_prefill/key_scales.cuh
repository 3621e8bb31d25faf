// Scales of int8 keys, one per (row, KV head), and of int8 queries, one per (token, query head).
//
// A raw score is the sum of 128 products of int8 numbers, times the key's scale. The row's own scale is a factor of all
// scores of the row (RowFactors), and its sign is applied where it is negative.
#pragma once

#include "kernels/cuda/sm90_prefill/producer.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/softmax.cuh"

namespace attnbench::sm90_prefill {

/// The warp that loads the scales of the keys. It takes items as follow() does (producer.cuh), and shares
/// the barriers of K's ring with the producer: a KV block is full when both have arrived, and empty when
/// consumers have read both.
template <Shape kShape>
class KeyScaleLoader {
  using D = Derived<kShape>;
  static constexpr int kKeysOfLane = (kShape.block_n + 31) / 32;

  using Scales = float[kKeysOfLane];  ///< of this lane's keys of a KV block

 public:
  __device__ __forceinline__ KeyScaleLoader(const KernelParams& p, SharedMemory<kShape>& smem, int lane)
      : p_(p), smem_(smem), lane_(lane) {}

  __device__ __forceinline__ void run() {
    follow(smem_, lane_, [&](const WorkItem& item, auto near_end) { load(item, near_end); });
  }

 private:
  /// Loads the scales of an item. Those of a KV block are fetched while the block before it waits for room.
  template <class NearEnd>
  __device__ __forceinline__ void load(const WorkItem& item, NearEnd near_end) {
    if (item.n_begin >= item.n_end) {
      near_end();
      return;
    }
    const float* const head =
        p_.descales.k + p_.by_head_tiles_per_kv_head.divide(item.head) * p_.descales.k_stride_head;
    Scales next;
    fetch(next, head, item, item.n_end - 1);
#pragma unroll 1
    for (int n = item.n_end - 1; n >= item.n_begin; --n) {
      if (n == min(item.n_begin + kNearEnd, item.n_end - 1)) near_end();
      smem_.k_ring.await_empty(place_);
      float* const stage = smem_.key_scales.scale[place_.stage()];
#pragma unroll
      for (int i = 0; i < kKeysOfLane; ++i) {
        if (32 * i + lane_ < kShape.block_n) stage[32 * i + lane_] = next[i];
      }
      __syncwarp();
      if (lane_ == 0) smem_.k_ring.full_at(place_).arrive();
      place_.advance();
      if (n > item.n_begin) fetch(next, head, item, n - 1);
    }
  }

  /// Reads the scales of this lane's keys of KV block n; zeros past the sequence's end and for keys that no query
  /// sees, whose pages are not followed. `head`: scales of the KV head.
  __device__ __forceinline__ void fetch(Scales& scales, const float* head, const WorkItem& item,
                                        int n) const {
    const int first_seen = item.n_begin * kShape.block_n + item.expired;
#pragma unroll
    for (int i = 0; i < kKeysOfLane; ++i) {
      const int key = n * kShape.block_n + 32 * i + lane_;
      scales[i] = key < first_seen || key >= item.k_len ? 0.0f : __ldg(head + offset_of(item, key));
    }
  }

  /// Where the scale of a key lies, counted from the first scale of its KV head.
  __device__ __forceinline__ int64_t offset_of(const WorkItem& item, int key) const {
    const DescaleParams& d = p_.descales;
    if (p_.block_table == nullptr) return (int64_t{item.kv_base} + key) * d.k_stride_outer;
    const int page = p_.by_block_size.divide(key);
    const int64_t block = p_.block_table[item.kv_base * p_.block_table_stride + page];
    return block * d.k_stride_block + (key - page * p_.block_size) * d.k_stride_outer;
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int lane_;
  hopper::RingPlace<D::kKStages> place_;
};

/// Sets s := sums * scales of their keys. `scales`: those of the KV block, from this lane's first key on, which is key
/// 2 * (lane % 4).
template <int kCount>
__device__ __forceinline__ void scale_by_keys(float (&s)[kCount], const int32_t (&sums)[kCount],
                                              const float* scales) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float2 key = *reinterpret_cast<const float2*>(scales + 2 * i);
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i + j] = __int2float_rn(sums[i + j]) * (j % 2 == 0 ? key.x : key.y);
  }
}

/// The scales of a thread's two query rows.
struct QueryScales {
  float of_row[2];
};

/// Factors of the scores of these rows, without signs. `factor`: as KernelParams::score_factor. The softmax
/// requires factors above 0, so a zero counts as 1e-30. NaN stays NaN.
__device__ __forceinline__ RowFactors factors_of(const QueryScales& scales, float factor) {
  constexpr float kLeast = 1e-30f;
  RowFactors result;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float size = fabsf(scales.of_row[h]);
    result.of_row[h] = factor * (size < kLeast ? kLeast : size);
  }
  return result;
}

/// The signs of these scales.
class QuerySigns {
 public:
  __device__ __forceinline__ QuerySigns() {}
  __device__ __forceinline__ explicit QuerySigns(const QueryScales& scales) {
    const uint32_t first = __float_as_uint(scales.of_row[0]), second = __float_as_uint(scales.of_row[1]);
    bits_ = (first & kSign) | (second & kSign) >> 1;
  }

  /// Whether a row of the warp has a negative scale. All lanes call it.
  __device__ __forceinline__ bool exist() const { return __any_sync(~0u, bits_ != 0); }

  /// Changes the signs of the scores of rows with a negative scale.
  template <int kCount>
  __device__ __forceinline__ void apply(float (&s)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      s[i] = __uint_as_float(__float_as_uint(s[i]) ^ (bits_ << i / 2 % 2 & kSign));
    }
  }

 private:
  static constexpr uint32_t kSign = 0x80000000;
  uint32_t bits_;  ///< kSign for the first row, kSign / 2 for the second
};

/// What a consumer holds beside its scores.
struct Int8State {
  QueryScales scales;  ///< of the tile's rows
  RowFactors factors;  ///< of the current tile, as its signs
  QuerySigns signs;
  bool any_sign;  ///< signs.exist()
};

}  // namespace attnbench::sm90_prefill
