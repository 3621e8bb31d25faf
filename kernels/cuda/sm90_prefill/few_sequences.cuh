// The order of work of a launch without a list. A warp finds it by itself, with a sequence per lane: 32
// sequences at a time, a *slice*.
#pragma once

#include <cuda_runtime.h>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// The most keys of one sequence that count in sums over all sequences, which thus fit 32 bits.
inline constexpr int32_t kCountedKeys = 1 << 23;
static_assert(int64_t{kCountedKeys} * kMaxAloneSequences < INT32_MAX);

/// Sum of the keys of all sequences, at most kCountedKeys of each. Each lane passes one sequence.
__device__ __forceinline__ int32_t sum_of_keys(int32_t k_len) {
  return __reduce_add_sync(~0u, min(k_len, kCountedKeys));
}

/// Sum of the values of the lanes before this one.
template <class T>
__device__ __forceinline__ T sum_of_lanes_before(T value, int lane) {
  T sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  return sum - value;
}

/// Draws the next work from the counter, for a warp.
__device__ __forceinline__ int draw_work(Schedule& schedule, int lane) {
  cudaGridDependencySynchronize();  // the counter is set
  int drawn = 0;
  if (lane == 0) drawn = atomicAdd(&schedule.next_work, 1);
  return __shfl_sync(~0u, drawn, 0);
}

/// The same where no kernel sets the counter: it counts draws, and is zero before and after each launch. Blocks
/// draw until they get no work, which makes `works` draws in all.
__device__ __forceinline__ int draw_and_wrap(Schedule& schedule, int works, int lane) {
  int drawn = 0;
  if (lane == 0)
    drawn = static_cast<int>(atomicInc(reinterpret_cast<unsigned*>(&schedule.next_work), works - 1));
  return gridDim.x + __shfl_sync(~0u, drawn, 0);
}

/// True if a launch of at most kMaxFewSequences sequences needs no list, because keys and values of a head fit
/// the budget, so that there are no groups. Both device kernels call this, and so decide alike.
__device__ __forceinline__ bool needs_no_list(int32_t total_keys, const KvBudget& budget) {
  return static_cast<int64_t>(total_keys) * budget.token_bytes <= budget.bytes;
}

/// Head tiles of a section: those of as many KV heads as fit the budget.
__device__ __forceinline__ int heads_per_section(int64_t total_keys, const KvBudget& budget,
                                                 int head_tiles_per_kv_head, int num_head_tiles) {
  const int64_t head_bytes = max(total_keys, int64_t{1}) * budget.token_bytes;
  const int64_t kv_heads = max(budget.bytes / head_bytes, int64_t{1});
  return static_cast<int>(min(kv_heads * head_tiles_per_kv_head, int64_t{num_head_tiles}));
}

/// If no sequence has more keys than this, all heads but those of the last section are one section. Such
/// launches wait for memory, which is faster when the rows of a token's heads are read and written together.
/// Blocks then work on two or three sequences at a time, whose keys and values fit L2 all the same.
inline constexpr int32_t kWholeRowKeys = 512;

/// Sequences of a slice: one per lane.
inline constexpr int kSlice = 32;

/// Values of the slice's sequences that the scheduling warp keeps in shared memory.
struct Notes {
  struct {
    int32_t q_row;
    int32_t kv_base;
  } first[kSlice];  ///< for each sequence, as in WorkItem
};

/// The items of the sequences, in one of two orders.
///
/// By sequence, the last tile of each first. A sequence's first items wait for memory, later ones find its
/// keys in L2, and so both kinds of blocks mix.
///
/// By size: in each slice by the number of KV blocks up to a tile's last visible key, most first. This order
/// is for the last section, where blocks should stop together. Tile m of a sequence sees at least as many keys
/// as tile m - 1. So its tiles of at least `level` blocks are its last ones, and arithmetic gives their number.
template <int kBlockN>
class FewSequences {
 public:
  /// All lanes of the warp call it together, as all functions of this class.
  __device__ __forceinline__ FewSequences(const KernelParams& p, Notes& notes, int lane)
      : p_(p), notes_(notes), lane_(lane) {
    int32_t tiles = 0, keys = 0, longest = 0;
#pragma unroll 1
    for (int first = 0; first < p.sequences.batch; first += kSlice) {
      const Lengths own = lengths_of(first + lane_);
      tiles += tiles_of(own);
      keys += min(own.k, kCountedKeys);
      longest = max(longest, own.k);
    }
    count_ = __reduce_add_sync(~0u, tiles);
    longest_ = __reduce_max_sync(~0u, longest);
    total_keys_ = __reduce_add_sync(~0u, keys);
  }

  /// Sum of the keys of all sequences, at most kCountedKeys of each.
  __device__ __forceinline__ int32_t total_keys() const { return total_keys_; }

  __device__ __forceinline__ int32_t longest_keys() const { return longest_; }

  /// Number of items.
  __device__ __forceinline__ int count() const { return count_; }

  /// Item `index` < count(), without its head.
  __device__ __forceinline__ WorkItem item(int index, bool by_size) {
    int slice = first_;
    if (index < items_before_ || slice < 0) slice = items_before_ = 0;
    while (true) {  // show() stands in one place, for the sake of the instruction cache
      if (slice != first_) show(slice);
      const int here = __reduce_add_sync(~0u, tiles());
      if (index < items_before_ + here) break;
      items_before_ += here;
      slice += kSlice;
    }
    index -= items_before_;
    // The greatest level with more than `index` items at or above it; by sequence, level 1 has them all.
    int level = 1;
    for (int end = by_size ? __reduce_max_sync(~0u, levels()) + 1 : 2; end - level > 1;) {
      const int middle = (level + end) / 2;
      if (__reduce_add_sync(~0u, tiles_from(middle)) > index) {
        level = middle;
      } else {
        end = middle;
      }
    }
    const int above = by_size ? tiles_from(level + 1) : 0;
    const int here = tiles_from(level) - above;
    const int place = index - __reduce_add_sync(~0u, above);
    const int before = sum_of_lanes_before(here, lane_);
    const bool owns = place >= before && place < before + here;
    const int owner = __ffs(__ballot_sync(~0u, owns)) - 1;
    const int tile = __shfl_sync(~0u, tiles() - above - 1 - (place - before), owner);
    const int q_len = __shfl_sync(~0u, own_.q, owner);
    const int k_len = __shfl_sync(~0u, own_.k, owner);
    const int first = tile * p_.tokens_per_tile;
    const int tokens = min(p_.tokens_per_tile, q_len - first);
    const int diagonal = first + k_len - q_len;
    const int begin = max(0, diagonal - p_.reach_left);
    const int end = min(k_len, diagonal + tokens + p_.reach_right);
    const bool empty = begin >= end;
    WorkItem item;
    item.q_row = notes_.first[owner].q_row + first;
    item.q_tokens = static_cast<uint8_t>(tokens);
    item.state = 0;
    item.diagonal = diagonal;
    item.k_len = k_len;
    item.kv_base = notes_.first[owner].kv_base;
    item.n_begin = empty ? 0 : begin / kBlockN;
    item.n_end = empty ? 0 : (end + kBlockN - 1) / kBlockN;
    item.expired = expired_keys(first, diagonal, p_.reach_left, item.n_begin, kBlockN);
    return item;
  }

 private:
  struct Lengths {
    int32_t q = 0, k = 0;
  };

  /// Lengths of sequence b; zeros past the batch.
  __device__ __forceinline__ Lengths lengths_of(int b) const {
    const SeqArrays& a = p_.sequences;
    if (b >= a.batch) return {};
    return {a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b],
            a.seqused_k != nullptr ? a.seqused_k[b] : a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b]};
  }

  /// Moves to the slice that begins with sequence `first`.
  __device__ __forceinline__ void show(int first) {
    const SeqArrays& a = p_.sequences;
    const int b = first + lane_;
    first_ = first;
    own_ = lengths_of(b);
    __syncwarp();  // the notes of the slice before have been read
    if (b < a.batch) notes_.first[lane_] = {a.cu_seqlens_q[b], a.kv_bases.of(b)};
    __syncwarp();
  }

  __device__ __forceinline__ int tiles_of(const Lengths& l) const {
    return (l.q + p_.tokens_per_tile - 1) / p_.tokens_per_tile;
  }

  /// Tiles and levels of this lane's sequence.
  __device__ __forceinline__ int tiles() const { return tiles_of(own_); }
  __device__ __forceinline__ int levels() const { return max((own_.k + kBlockN - 1) / kBlockN, 1); }

  /// Tiles of this lane's sequence that belong to `level` or above: all for level 1, none above its own
  /// level. Rounding of the quotient changes only the order.
  __device__ __forceinline__ int tiles_from(int level) const {
    if (level > levels()) return 0;
    if (level == 1) return tiles();
    // Tile m ends at key (m + 1) * tokens_per_tile + k_len - q_len + reach_right.
    const int keys_of_first = own_.k - own_.q + p_.reach_right;
    const float tiles_below = static_cast<float>((level - 1) * kBlockN - keys_of_first) * p_.tiles_per_token;
    return tiles() - min(max(__float2int_rd(tiles_below), 0), tiles());
  }

  const KernelParams& p_;
  Notes& notes_;
  int lane_;
  int first_ = -1;        ///< first sequence of the slice; -1: none yet
  int items_before_ = 0;  ///< items of the slices before it
  Lengths own_;           ///< of the slice's sequence in this lane
  int count_;
  int32_t longest_;
  int32_t total_keys_;
};

}  // namespace attnbench::sm90_prefill
