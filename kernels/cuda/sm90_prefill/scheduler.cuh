// The order in which blocks take work from the schedule.
//
// Work w = 0, 1, ... runs over groups of sequences, in a group over sections of heads, in a section over the
// group's items, and for each item over the section's heads. A section's keys and values fit L2, so all tiles
// that read them find them there; sequences of at most kWholeRowKeys keys may have larger ones. Items from the list
// come longest first. Those of few sequences come longest first only in the last section, so that blocks end together;
// before it they come by sequence (few_sequences.cuh).
#pragma once

#include <type_traits>

#include "kernels/cuda/sm90_prefill/few_sequences.cuh"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// Draws work for one block, in a warp of its own. All its lanes call each function together and get the same
/// result.
///
/// The first work is the block's number (unless KernelParams::draw_first); later numbers come from the
/// counter. The kernel before this one sets it, unless KernelParams::alone.
///
/// kListed: all launches have a list, so that code to find works without one is left out.
template <int kBlockN, bool kListed>
class WorkSource {
 public:
  __device__ __forceinline__ WorkSource(const KernelParams& p, Notes& notes, int lane)
      : p_(p), few_(p, notes, lane), heads_(p.num_head_tiles), lane_(lane), work_(blockIdx.x) {
    if constexpr (!kListed) {
      lists_ = p.sequences.batch == 0 || (!p.alone && !needs_no_list(few_.total_keys(), p.kv_budget));
    }
    if (lists()) {
      cudaGridDependencySynchronize();  // the list is complete
      const int4 header = __ldcg(reinterpret_cast<const int4*>(p.schedule));
      items_ = header.x;
      num_groups_ = header.y;
      per_section_ = header.z;
    } else if constexpr (!kListed) {
      items_ = few_.count();
      num_groups_ = 1;
      per_section_ =
          heads_per_section(few_.total_keys(), p.kv_budget, p.head_tiles_per_kv_head, p.num_head_tiles);
      if (per_section_ < heads_ && few_.longest_keys() <= kWholeRowKeys) {
        per_section_ = max(per_section_, heads_ - per_section_);
      }
    }
    if (p.draw_first) draw();
  }

  /// True while there is work: then item() is the current one.
  __device__ __forceinline__ bool has_work() const { return work_ < items_ * heads_; }

  /// Moves on to the next work.
  __device__ __forceinline__ void draw() {
    const bool alone = !kListed && p_.alone;
    work_ = alone ? draw_and_wrap(*p_.schedule, items_ * heads_, lane_) : draw_work(*p_.schedule, lane_);
  }

  /// The current work.
  __device__ __forceinline__ WorkItem item() {
    int begin = 0;
    int end = items_;
    if (num_groups_ > 1) {
      const int group = __ldcg(&p_.schedule->items[work_ / heads_].head);
      begin = __ldcg(&p_.schedule->group_begin[group]);
      end = __ldcg(&p_.schedule->group_begin[group + 1]);
    }
    const int size = end - begin;
    const int in_group = work_ - begin * heads_;
    const int section = in_group / (size * per_section_);
    const int first_head = section * per_section_;
    const int width = min(per_section_, heads_ - first_head);
    const int in_section = in_group - size * first_head;
    const int index = begin + in_section / width;
    WorkItem item;
    if (lists()) {
      const auto* words = reinterpret_cast<const int4*>(&p_.schedule->items[index]);
      const int4 a = __ldcg(words), b = __ldcg(words + 1);
      item = {.q_row = a.x, .diagonal = a.z, .k_len = a.w, .kv_base = b.x, .n_begin = b.y, .n_end = b.z};
      unpack_tokens(item, a.y);
    } else if constexpr (!kListed) {
      item = few_.item(index, first_head + width == heads_);
    }
    item.head = first_head + in_section % width;
    return item;
  }

 private:
  struct NoSequences {
    __device__ __forceinline__ NoSequences(const KernelParams&, Notes&, int) {}
  };

  /// Work comes from the list in memory.
  __device__ __forceinline__ bool lists() const { return kListed || lists_; }

  const KernelParams& p_;
  std::conditional_t<kListed, NoSequences, FewSequences<kBlockN>> few_;
  int heads_;
  int lane_;
  int work_;
  int items_;
  int num_groups_;
  int per_section_;
  bool lists_;
};

}  // namespace attnbench::sm90_prefill
