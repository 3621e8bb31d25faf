// The order in which blocks take work from the schedule.
//
// Work w = 0, 1, ... runs over groups of sequences, in a group over sections of heads, in a section over the
// group's items, longest first, and for each item over the section's heads. A section's keys and values fit
// L2, so all tiles that read them find them there; within it the longest tiles start first, so that blocks
// end together.
#pragma once

#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// Draws work for one block. All lanes of one warp call it together and get the same.
class WorkSource {
 public:
  __device__ __forceinline__ WorkSource(const KernelParams& p, int lane)
      : schedule_(p.schedule), heads_(p.num_head_tiles), lane_(lane), work_(blockIdx.x) {
    total_ = __ldcg(&schedule_->num_items) * heads_;
  }

  /// The current work, false when there is none left. Draws the next number already, so that the counter's
  /// latency passes while this work is loaded.
  __device__ __forceinline__ bool get(WorkItem* item) {
    if (work_ >= total_) return false;
    if (lane_ == 0) drawn_ = atomicAdd(&schedule_->next_work, 1);
    const int group = __ldcg(&schedule_->items[work_ / heads_].head);
    const int begin = __ldcg(&schedule_->group_begin[group]);
    const int size = __ldcg(&schedule_->group_begin[group + 1]) - begin;
    const int per_section = __ldcg(&schedule_->heads_per_section);
    const int in_group = work_ - begin * heads_;
    const int section = in_group / (size * per_section);
    const int first_head = section * per_section;
    const int width = min(per_section, heads_ - first_head);
    const int in_section = in_group - size * first_head;
    const int4* words = reinterpret_cast<const int4*>(&schedule_->items[begin + in_section / width]);
    const int4 low = __ldcg(words);
    const int4 high = __ldcg(words + 1);
    *item = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, first_head + in_section % width};
    return true;
  }

  /// Moves on to the number drawn by get(). Numbers below gridDim.x are the blocks' first works.
  __device__ __forceinline__ void advance() { work_ = gridDim.x + __shfl_sync(~0u, drawn_, 0); }

 private:
  Schedule* schedule_;
  int heads_;
  int lane_;
  int work_;
  int total_;
  int drawn_ = 0;
};

}  // namespace attnbench::sm90_prefill
