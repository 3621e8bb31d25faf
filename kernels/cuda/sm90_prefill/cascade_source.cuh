// The works of a launch whose sequences share keys (cascade.h).
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/sm90_prefill/cascade.h"
#include "kernels/cuda/sm90_prefill/few_sequences.cuh"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// What the lengths, which only the device knows, make of the shared keys. A warp finds it.
struct CascadePrefix {
  int q_begin;  ///< packed row of the first query
  int q_end;
  int keys;    ///< keys that every query sees and that lie in shared blocks; a multiple of prefix_step
  int owner;   ///< a sequence that has them
  int tiles;   ///< query tiles
  int splits;  ///< of each tile; 0 without shared keys

  CascadePrefix() = default;

  /// All lanes of the warp call it together, and get the same values.
  __device__ __forceinline__ CascadePrefix(const KernelParams& p, int block_n, int lane) {
    const SeqArrays& a = p.sequences;
    int seen = p.shared_prefix, longest = -1, longest_of = 0;
#pragma unroll 4
    for (int b = lane; b < a.batch; b += 32) {
      const int q_len = a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b];
      const int k_len = a.seqused_k[b];
      if (q_len <= 0) continue;
      seen = min(seen, min(k_len, k_len - q_len + 1 + p.reach_right));
      if (k_len > longest) {
        longest = k_len;
        longest_of = b;
      }
    }
    keys = max(__reduce_min_sync(~0u, seen), 0) / p.prefix_step * p.prefix_step;
    const bool has_longest = longest == __reduce_max_sync(~0u, longest);
    owner = __shfl_sync(~0u, longest_of, __ffs(__ballot_sync(~0u, has_longest)) - 1);
    q_begin = a.cu_seqlens_q[0];
    q_end = a.cu_seqlens_q[a.batch];
    tiles = (q_end - q_begin + p.tokens_per_tile - 1) / p.tokens_per_tile;
    splits = prefix_splits(keys / block_n, tiles * p.num_head_tiles, p.multiprocessors);
  }
};

/// Draws work for one block, as WorkSource does. The tensor cores limit works of the prefix, memory those of
/// suffixes. So the works of the prefix are spread over the first half of all works, and both run beside each
/// other. Without kSuffixes, other warps of the block take the suffixes.
template <int kBlockN, bool kSuffixes>
class CascadeSource {
 public:
  __device__ __forceinline__ CascadeSource(const KernelParams& p, Notes&, int lane)
      : p_(p), lane_(lane), work_(blockIdx.x), prefix_(p, kBlockN, lane) {
    of_prefix_ = prefix_.tiles * prefix_.splits * p.num_head_tiles;
    works_ = of_prefix_ + (kSuffixes ? p.sequences.batch * p.num_head_tiles : 0);
    stride_ = of_prefix_ > 0 ? max(works_ / (2 * of_prefix_), 1) : works_ + 1;
  }

  __device__ __forceinline__ bool has_work() const { return work_ < works_; }

  __device__ __forceinline__ void draw() { work_ = draw_and_wrap(*p_.schedule, works_, lane_); }

  __device__ __forceinline__ WorkItem item() const {
    const int before =
        min((work_ + stride_ - 1) / stride_, of_prefix_);  // works of the prefix before this one
    const bool is_prefix = before < of_prefix_ && work_ == before * stride_;
    const int place = is_prefix ? before : work_ - before;
    const int index = place / p_.num_head_tiles;
    WorkItem item;
    item.head = place - index * p_.num_head_tiles;
    item.expired = 0;
    if (is_prefix) {
      const int split = index / prefix_.tiles;
      const int tile = index - split * prefix_.tiles;
      const int blocks = prefix_.keys / kBlockN;
      const int length = (blocks + prefix_.splits - 1) / prefix_.splits;
      item.q_row = prefix_.q_begin + tile * p_.tokens_per_tile;
      item.q_tokens = static_cast<uint8_t>(min(p_.tokens_per_tile, prefix_.q_end - item.q_row));
      item.state = static_cast<uint16_t>(tile * prefix_.splits + split + 1);
      item.k_len = item.diagonal = prefix_.keys;
      item.kv_base = prefix_.owner;
      item.n_begin = split * length;
      item.n_end = min(item.n_begin + length, blocks);
    } else if constexpr (kSuffixes) {
      const SeqArrays& a = p_.sequences;
      item.q_row = a.cu_seqlens_q[index];
      const int q_len = a.cu_seqlens_q[index + 1] - item.q_row;
      item.q_tokens = static_cast<uint8_t>(q_len);
      item.state = kSuffixState;
      item.k_len = q_len > 0 ? a.seqused_k[index] : 0;
      item.diagonal = item.k_len - q_len;
      item.kv_base = index;
      item.n_begin = prefix_.keys / kBlockN;
      item.n_end = (item.k_len + kBlockN - 1) / kBlockN;
    }
    return item;
  }

 private:
  const KernelParams& p_;
  int lane_;
  int work_;
  CascadePrefix prefix_;
  int of_prefix_;  ///< works of the prefix
  int works_;
  int stride_;  ///< works from one of the prefix to the next
};

}  // namespace attnbench::sm90_prefill
