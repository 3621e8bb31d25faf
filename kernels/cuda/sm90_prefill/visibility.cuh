// Which keys of a KV block the rows of a consumer warpgroup see.
#pragma once

#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/softmax.cuh"

namespace attnbench::sm90_prefill {

/// Which keys of a KV block the rows of one warpgroup see. Keys count from the sequence's first.
template <Shape kShape>
class Visibility {
 public:
  __device__ __forceinline__ Visibility() {}

  /// This thread has rows `thread_row` and thread_row + 8; the warpgroup has `first_row` to first_row + 63.
  __device__ __forceinline__ Visibility(const KernelParams& p, const WorkItem& item, int first_row,
                                        int thread_row, int lane) {
    const int lane_keys = 2 * (lane % 4);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      end_[h] = item.k_len - lane_keys;
      if constexpr (kShape.masked) {
        const int diagonal = item.diagonal + token_of_row(p, thread_row + 8 * h) - lane_keys;
        end_[h] = min(end_[h], diagonal + p.reach_right + 1);
        begin_[h] = diagonal - p.reach_left;
      }
    }
    int all_see_until = item.k_len, all_see_from = 0;
    if constexpr (kShape.masked) {
      const int first_diagonal = item.diagonal + token_of_row(p, first_row);
      all_see_until = min(all_see_until, first_diagonal + p.reach_right + 1);
    }
    if constexpr (Derived<kShape>::kTakesWindows) {
      const int last_diagonal = item.diagonal + token_of_row(p, first_row + 63);
      all_see_from = max(0, last_diagonal - p.reach_left);
    }
    // The shuffles tell the compiler that these are the same in all lanes, so they take no registers.
    whole_begin_ = __shfl_sync(~0u, (all_see_from + kShape.block_n - 1) / kShape.block_n, 0);
    whole_end_ = __shfl_sync(~0u, max(0, all_see_until) / kShape.block_n, 0);
  }

  /// Whether all rows see all of KV block n.
  __device__ __forceinline__ bool is_whole(int n) const { return n >= whole_begin_ && n < whole_end_; }

  /// Masks the scores of KV block n, if some row does not see all of it.
  template <int kCount>
  __device__ __forceinline__ void mask(float (&s)[kCount], int n) const {
    const int first_key = n * kShape.block_n;
    if (n >= whole_end_) mask_from(s, {end_[0] - first_key, end_[1] - first_key});
    mask_left(s, n);
  }

  /// The input of OnlineSoftmax::begin() for KV block n. The warp's first row is the first row of lane 0, its
  /// last row the second row of lane 28. Rows further down see no fewer keys to the right.
  __device__ __forceinline__ BlockKeys seen(int n) const {
    const int first_key = n * kShape.block_n;
    return {{end_[0] - first_key, end_[1] - first_key},
            __shfl_sync(~0u, end_[0], 0) - first_key,
            __shfl_sync(~0u, end_[1], 28) - first_key,
            {sees_few(0, n), sees_few(1, n)}};
  }

  /// Whether row h sees few keys of KV block n, the first in which it sees any. Keys left of a window count too. All
  /// threads of a row agree.
  __device__ __forceinline__ bool sees_few(int h, int n) const {
    return end_[h] + 2 * static_cast<int>(lane_anew() % 4) - n * kShape.block_n < kFewKeys;
  }

  /// Masks keys left of the window.
  template <int kCount>
  __device__ __forceinline__ void mask_left(float (&s)[kCount], int n) const {
    if constexpr (Derived<kShape>::kTakesWindows) {
      const int first_key = n * kShape.block_n;
      if (__builtin_expect(n < whole_begin_, 0)) {
        mask_before(s, {begin_[0] - first_key, begin_[1] - first_key});
      }
    }
  }

  /// Keeps what masks need in shared memory, and brings it back. `thread` counts from the first consumer.
  __device__ __forceinline__ void park(Parked<kShape>& parked, int thread) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      parked.end[h][thread] = end_[h];
      parked.begin[h][thread] = begin_[h];
    }
  }
  __device__ __forceinline__ void unpark(const Parked<kShape>& parked, int thread) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      end_[h] = parked.end[h][thread];
      begin_[h] = parked.begin[h][thread];
    }
  }

 private:
  int end_[2];
  int begin_[2];
  int whole_begin_, whole_end_;  ///< all rows see all of KV blocks [whole_begin_, whole_end_)
};

}  // namespace attnbench::sm90_prefill
