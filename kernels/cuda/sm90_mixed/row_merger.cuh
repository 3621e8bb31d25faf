// Merges the rows of a cascade in the same launch: the consumers of sm90_prefill do so when there is no more work of
// the prefix, while the guests still decode suffixes.
//
// A row's states are those of the prefix's splits, which any block may have computed, and that of the suffix, which
// the guests of this block have finished. The sums of the prefix's states are absent until the states are complete
// (common/absent.cuh). Each row is merged once, and its merger makes them absent again for the next launch. So
// consumers wait for consumers of other blocks only, which wait for nobody before they have done all work of the
// prefix. Launches are cooperative, so that those blocks run.
#pragma once

#include "kernels/cuda/common/absent.cuh"
#include "kernels/cuda/sm90_mixed/guest_consumer.cuh"
#include "kernels/cuda/sm90_prefill/merge_row.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_mixed {

/// Merges the rows of the suffixes that this block finishes, for KV head `kv_head`. All consumer warps call it;
/// `warp` counts them. Each takes a row at a time.
template <sm90_prefill::Shape kShape>
__device__ __forceinline__ void merge_finished_rows(const sm90_prefill::KernelParams& p,
                                                    const sm90_prefill::CascadePrefix& prefix,
                                                    FinishedSuffixes& finished, int kv_head, int warp,
                                                    int lane) {
  constexpr int kWarps = sm90_prefill::Derived<kShape>::kConsumerWarps;
  const int64_t stride = int64_t{p.num_head_tiles} * kShape.block_m;
  const int group = p.head_tiles_per_kv_head * p.heads_per_tile;
  int next = warp;  // this warp's next row, counted from the sequence's first one
  for (uint32_t i = 0;; ++i) {
    const int b = finished.await(i, lane);
    if (b == FinishedSuffixes::kNoMore) return;
    const int q_begin = p.sequences.cu_seqlens_q[b];
    const int rows = (p.sequences.cu_seqlens_q[b + 1] - q_begin) * group;
    for (; next < rows; next += kWarps) {
      const int token = next / group;
      const sm90_prefill::Row row = sm90_prefill::row_of_cascade(p, prefix, kShape.block_m, q_begin + token,
                                                                 kv_head * group + next - token * group);
      float2* const sums = p.partial_sum + row.first;
      for (int first = 0; first < prefix.splits; first += 32) {
        const int split = first + lane;
        while (__any_sync(~0u, split < prefix.splits && !hopper::are_present(sums + split * stride))) {
          __nanosleep(100);
        }
      }
      hopper::fence_words();
      __syncwarp();  // with the fence of the lane that saw a word: the outputs are there for all lanes
      sm90_prefill::merge_row<kShape.head_dim, true>(p, kShape.dtype, row, stride, lane);
      for (int split = lane; split < prefix.splits; split += 32) {
        hopper::store_words(sums + split * stride, hopper::kAbsent, hopper::kAbsent);
      }
    }
    next -= rows;
  }
}

}  // namespace attnbench::sm90_mixed
