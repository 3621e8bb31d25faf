// The order in which blocks take work from the schedule.
//
// Work w = 0, 1, ... runs over groups of sequences, in a group over sections of heads, in a section over the
// group's items, longest first, and for each item over the section's heads. A section's keys and values fit
// L2, so all tiles that read them find them there; within it the longest tiles start first, so that blocks
// end together.
#pragma once

#include <cstddef>

#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// Draws work for one block. All lanes of one warp call it together and get the same.
class WorkSource {
 public:
  __device__ __forceinline__ WorkSource(const KernelParams& p, int lane)
      : schedule_(p.schedule), heads_(p.num_head_tiles), lane_(lane), work_(blockIdx.x) {
    const int4 header = __ldcg(reinterpret_cast<const int4*>(schedule_));
    total_ = header.x * heads_;
    num_groups_ = header.y;
    per_section_ = header.z;
    fetch();
  }

  /// The current work, a word of its WorkItem in each of lanes 0 to 7; false when there is none left. Draws
  /// the next number already.
  __device__ __forceinline__ bool get(int32_t* word) {
    if (work_ >= total_) return false;
    if (lane_ == 0) drawn_ = atomicAdd(&schedule_->next_work, 1);
    *word = word_;
    return true;
  }

  /// Moves on to the number drawn by get(), once per get(), some time before the next: the latencies of the
  /// counter and of the item pass while this work is loaded. Numbers below gridDim.x are the blocks' first
  /// works.
  __device__ __forceinline__ void look_ahead() {
    work_ = gridDim.x + __shfl_sync(~0u, drawn_, 0);
    fetch();
  }

 private:
  /// Starts the load of the item of work_, a word per lane, and finds its head.
  __device__ __forceinline__ void fetch() {
    if (work_ >= total_) return;
    int begin = 0;
    int end = total_ / heads_;
    if (num_groups_ > 1) {
      const int group = __ldcg(&schedule_->items[work_ / heads_].head);
      begin = __ldcg(&schedule_->group_begin[group]);
      end = __ldcg(&schedule_->group_begin[group + 1]);
    }
    const int size = end - begin;
    const int in_group = work_ - begin * heads_;
    const int section = in_group / (size * per_section_);
    const int first_head = section * per_section_;
    const int width = min(per_section_, heads_ - first_head);
    const int in_section = in_group - size * first_head;
    const auto* words = reinterpret_cast<const int32_t*>(&schedule_->items[begin + in_section / width]);
    word_ = lane_ == kHeadWord ? first_head + in_section % width : __ldcg(words + lane_ % 8);
  }

  static constexpr int kHeadWord = offsetof(WorkItem, head) / sizeof(int32_t);

  Schedule* schedule_;
  int heads_;
  int lane_;
  int work_;
  int total_;
  int num_groups_;
  int per_section_;
  int32_t word_ = 0;
  int drawn_ = 0;
};

}  // namespace attnbench::sm90_prefill
