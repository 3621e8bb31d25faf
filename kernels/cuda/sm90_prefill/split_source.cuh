// The works of a launch whose tiles may be split (split.h). A warp finds them by arithmetic, with a sequence
// per lane, so that there is no list to wait for.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/sm90_prefill/few_sequences.cuh"
#include "kernels/cuda/sm90_prefill/params.h"
#include "kernels/cuda/sm90_prefill/split.h"

namespace attnbench::sm90_prefill {

/// The lane whose range [before, before + count) has `index`. Ranges do not overlap, and one has it.
__device__ __forceinline__ int owner_of(int index, int before, int count) {
  return __ffs(__ballot_sync(~0u, before <= index && index < before + count)) - 1;
}

/// One sequence, and how it is split. Lanes past the batch have one without tiles.
struct SplitSequence {
  int q_row = 0;  ///< packed row of its first query
  int q_len = 0;
  int k_len = 0;
  int tiles = 0;
  int splits = 1;       ///< of each tile
  int length = 0;       ///< KV blocks of a split
  int first_state = 0;  ///< the states of tile m: first_state + m * splits + split, if splits > 1

  /// Each lane reads its own sequence; all lanes of the warp call it together. No window limits the left side
  /// in a launch that splits, so the last tile has all KV blocks of the sequence.
  __device__ __forceinline__ SplitSequence(const KernelParams& p, int block_n, int lane) {
    const SeqArrays& a = p.sequences;
    if (lane < a.batch) {
      q_row = a.cu_seqlens_q[lane];
      q_len = a.cu_seqlens_q[lane + 1] - q_row;
      k_len = a.seqused_k != nullptr ? a.seqused_k[lane] : a.cu_seqlens_k[lane + 1] - a.cu_seqlens_k[lane];
    }
    tiles = (q_len + p.tokens_per_tile - 1) / p.tokens_per_tile;
    const int last = tiles > 0 ? (k_len + block_n - 1) / block_n : 0;
    const int longest = __reduce_max_sync(~0u, last);
    const int blocks = __reduce_add_sync(~0u, tiles * last) * p.num_head_tiles;
    if (blocks > 0) {  // best_split(), with a choice per lane
      const float works = static_cast<float>(blocks) / static_cast<float>(longest);
      const int rounds = min(lane, kMostRounds);
      const SplitChoice choice = split_into(rounds, works, longest, p.multiprocessors);
      const unsigned least = __reduce_min_sync(~0u, static_cast<unsigned>(choice.time) * 8 + rounds);
      splits = splits_of(last, __shfl_sync(~0u, choice.length, least % 8));
    }
    length = (last + splits - 1) / splits;
    first_state = sum_of_lanes_before(splits > 1 ? tiles * splits : 0, lane);
  }
};

/// Draws work for one block, as WorkSource does. Sequences with the longest splits come first, so that blocks
/// end together. Within a sequence, the tiles of a split follow each other, and their heads.
template <int kBlockN>
class SplitSource {
 public:
  __device__ __forceinline__ SplitSource(const KernelParams& p, Notes&, int lane)
      : p_(p), lane_(lane), work_(blockIdx.x), own_(p, kBlockN, lane) {
    count_ = own_.tiles * own_.splits;
    kv_base_ = lane < p.sequences.batch ? p.sequences.kv_bases.of(lane) : 0;
    before_ = 0;
#pragma unroll 1
    for (int other = 0; other < p.sequences.batch; ++other) {
      const int length = __shfl_sync(~0u, own_.length, other);
      const int count = __shfl_sync(~0u, count_, other);
      if (length > own_.length || (length == own_.length && other < lane)) before_ += count;
    }
    works_ = __reduce_add_sync(~0u, count_) * p.num_head_tiles;
  }

  __device__ __forceinline__ bool has_work() const { return work_ < works_; }

  __device__ __forceinline__ void draw() { work_ = draw_and_wrap(*p_.schedule, works_, lane_); }

  __device__ __forceinline__ WorkItem item() const {
    const int index = work_ / p_.num_head_tiles;
    const int owner = owner_of(index, before_, count_);
    const int place = index - __shfl_sync(~0u, before_, owner);
    const int tiles = __shfl_sync(~0u, own_.tiles, owner);
    const int splits = __shfl_sync(~0u, own_.splits, owner);
    const int length = __shfl_sync(~0u, own_.length, owner);
    const int q_len = __shfl_sync(~0u, own_.q_len, owner);
    const int split = place / tiles;
    const int tile = place - split * tiles;
    const int first = tile * p_.tokens_per_tile;
    WorkItem item;
    item.q_row = __shfl_sync(~0u, own_.q_row, owner) + first;
    item.q_tokens = static_cast<uint8_t>(min(p_.tokens_per_tile, q_len - first));
    item.expired = 0;
    item.k_len = __shfl_sync(~0u, own_.k_len, owner);
    item.kv_base = __shfl_sync(~0u, kv_base_, owner);
    item.diagonal = first + item.k_len - q_len;
    item.head = work_ - index * p_.num_head_tiles;
    const int state = __shfl_sync(~0u, own_.first_state, owner) + tile * splits + split;
    item.state = static_cast<uint16_t>(splits > 1 ? state + 1 : 0);
    const int end = min(item.k_len, item.diagonal + item.q_tokens + p_.reach_right);
    item.n_begin = split * length;
    item.n_end = min(item.n_begin + length, (max(end, 0) + kBlockN - 1) / kBlockN);
    return item;
  }

 private:
  const KernelParams& p_;
  int lane_;
  int work_;
  int works_;
  SplitSequence own_;
  int kv_base_;
  int count_;   ///< splits of all tiles of this lane's sequence
  int before_;  ///< those of sequences that come before it
};

}  // namespace attnbench::sm90_prefill
