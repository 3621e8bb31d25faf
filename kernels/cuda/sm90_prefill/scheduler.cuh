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

/// Draws work for one block. All lanes of one warp call it together and get the same. `kLateDraw`: a number
/// is drawn by draw(), just before it is needed, so that work is not reserved while other blocks have none;
/// else already by get().
template <bool kLateDraw>
class WorkSource {
 public:
  __device__ __forceinline__ WorkSource(const KernelParams& p, int lane)
      : schedule_(p.schedule), heads_(p.num_head_tiles), lane_(lane), work_(blockIdx.x) {
    if constexpr (kLateDraw) {
      if (p.draw_first) {
        draw();
        work_ = __shfl_sync(~0u, drawn_, 0);
      }
    }
    header_ = load_header();
    fetch();
  }

  /// The current work, a word of its WorkItem in each of lanes 0 to 7; false when there is none left.
  __device__ __forceinline__ bool get(int32_t* word) {
    if (work_ >= header_.x * heads_) return false;
    if constexpr (!kLateDraw) draw();
    *word = word_;
    return true;
  }

  /// Draws the next number, once per get(), some time before look_ahead(): the latency of the counter passes
  /// meanwhile.
  __device__ __forceinline__ void draw() {
    if (lane_ == 0) drawn_ = atomicAdd(&schedule_->next_work, 1);
  }

  /// Moves on to the number drawn, some time before the next get(): the latency of the item passes while this
  /// work is loaded.
  __device__ __forceinline__ void look_ahead() {
    work_ = __shfl_sync(~0u, drawn_, 0);
    fetch();
  }

 private:
  __device__ __forceinline__ int4 load_header() const {
    return __ldcg(reinterpret_cast<const int4*>(schedule_));
  }

  /// Starts the load of the item of work_, a word per lane, and finds its head.
  __device__ __forceinline__ void fetch() {
    if (work_ >= header_.x * heads_) return;
    // Loaded again where registers are scarcer than time.
    const int4 header = kLateDraw ? load_header() : header_;
    const int num_groups = header.y, per_section = header.z;
    int begin = 0;
    int end = header.x;
    if (num_groups > 1) {
      const int group = __ldcg(&schedule_->items[work_ / heads_].head);
      begin = __ldcg(&schedule_->group_begin[group]);
      end = __ldcg(&schedule_->group_begin[group + 1]);
    }
    const int size = end - begin;
    const int in_group = work_ - begin * heads_;
    const int section = in_group / (size * per_section);
    const int first_head = section * per_section;
    const int width = min(per_section, heads_ - first_head);
    const int in_section = in_group - size * first_head;
    const auto* words = reinterpret_cast<const int32_t*>(&schedule_->items[begin + in_section / width]);
    word_ = lane_ == kHeadWord ? first_head + in_section % width : __ldcg(words + lane_ % 8);
  }

  static constexpr int kHeadWord = offsetof(WorkItem, head) / sizeof(int32_t);

  Schedule* schedule_;
  int heads_;
  int lane_;
  int work_;
  int4 header_;
  int32_t word_ = 0;
  int drawn_ = 0;
};

}  // namespace attnbench::sm90_prefill
