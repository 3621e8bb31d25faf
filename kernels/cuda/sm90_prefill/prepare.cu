#include "kernels/cuda/sm90_prefill/prepare.h"

#include <cuda_runtime.h>

#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"

namespace attnbench::sm90_prefill {
namespace {

constexpr int kThreads = 1024;
constexpr int kBuckets = 1024;  // one per thread in the scan

/// Sum over the block, in all threads. `scratch`: one value per warp.
template <class T>
__device__ T block_sum(T value, T* scratch) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += scratch[w];
  return sum;
}

/// Sum of the values of the threads before this one.
template <class T>
__device__ T block_sum_before(T value, T* scratch) {
  const int lane = threadIdx.x % 32;
  T sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();
  if (lane == 31) scratch[threadIdx.x / 32] = sum;
  __syncthreads();
  T before = sum - value;
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) before += scratch[w];
  return before;
}

/// One page of sequences in shared memory, a sequence per thread.
struct Page {
  int64_t scratch[kThreads / 32];
  int64_t keys_after;            ///< keys of this page's and all earlier sequences
  int first_tile[kThreads + 1];  ///< tiles of the page's sequences before this one
  SeqRange range[kThreads];
  int group[kThreads];
  int bucket[kBuckets];
};

/// Where a sequence's keys start (WorkItem::kv_base).
__device__ int kv_base(const AttentionParams& p, int b) {
  return p.features & kPagedKv ? b : p.cu_seqlens_k[b];
}

/// Tile `tile` of sequence b.
__device__ WorkItem make_item(const AttentionParams& p, const ScheduleParams& s, int b, const SeqRange& range,
                              int tile, int group) {
  const int first = tile * s.tokens_per_tile;
  const int tokens = min(s.tokens_per_tile, range.q_len - first);
  const KeyBounds keys = visible_keys_of_rows(p, first, first + tokens - 1, range.q_len, range.k_len);
  WorkItem item;
  item.q_row = range.q_begin + first;
  item.q_tokens = tokens;
  item.diagonal = first + range.k_len - range.q_len;
  item.k_len = range.k_len;
  item.kv_base = kv_base(p, b);
  item.n_begin = keys.begin / s.block_n;
  item.n_end = (keys.end + s.block_n - 1) / s.block_n;
  item.head = group;
  return item;
}

/// Calls visit(item) for all tiles of all sequences, spread over the block's threads; the block calls it
/// together. Sequence b is in the group of its first key: `total_keys` are dealt out to `num_groups` in
/// order.
template <class Visit>
__device__ void for_each_item(const AttentionParams& p, const ScheduleParams& s, int64_t total_keys,
                              int num_groups, Page& page, Visit visit) {
  int64_t keys_before = 0;
  for (int first = 0; first < p.batch; first += kThreads) {
    const int b = first + threadIdx.x;
    const SeqRange range = b < p.batch ? seq_range(p, b) : SeqRange{0, 0, 0};
    const int tiles = (range.q_len + s.tokens_per_tile - 1) / s.tokens_per_tile;
    // Both sums in one scan: fewer than 2^31 tiles and 2^32 keys on a page.
    const int64_t before = block_sum_before(static_cast<int64_t>(tiles) << 32 | range.k_len, page.scratch);
    const int64_t key = keys_before + (before & 0xffffffff);
    page.range[threadIdx.x] = range;
    page.first_tile[threadIdx.x] = static_cast<int>(before >> 32);
    page.group[threadIdx.x] =
        total_keys > 0 ? static_cast<int>(min(key * num_groups / total_keys, int64_t{num_groups - 1})) : 0;
    if (threadIdx.x == kThreads - 1) {
      page.first_tile[kThreads] = static_cast<int>(before >> 32) + tiles;
      page.keys_after = key + range.k_len;
    }
    __syncthreads();
    keys_before = page.keys_after;
    for (int tile = threadIdx.x; tile < page.first_tile[kThreads]; tile += kThreads) {
      int i = 0;  // the last sequence with first_tile[i] <= tile, which has tiles
      for (int step = kThreads / 2; step > 0; step /= 2) {
        if (page.first_tile[i + step] <= tile) i += step;
      }
      visit(make_item(p, s, first + i, page.range[i], tile - page.first_tile[i], page.group[i]));
    }
    __syncthreads();
  }
}

/// One block. Counting sort of all tiles by (group, KV blocks descending); the order within a bucket is
/// arbitrary and changes no result.
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(const __grid_constant__ AttentionParams p, const ScheduleParams s, Schedule* schedule) {
  cudaTriggerProgrammaticLaunchCompletion();  // the attention kernel may set itself up meanwhile
  __shared__ Page page;

  int64_t keys = 0;
  for (int b = threadIdx.x; b < p.batch; b += kThreads) keys += seq_range(p, b).k_len;
  const int64_t total_keys = block_sum(keys, page.scratch);
  const int64_t head_bytes = total_keys * s.kv_token_bytes;
  const int num_groups = static_cast<int>(
      min(max((head_bytes + s.kv_budget_bytes - 1) / s.kv_budget_bytes, int64_t{1}), int64_t{kMaxGroups}));

  const int levels = kBuckets / num_groups;
  const int max_blocks = (p.max_seqlen_k + s.block_n - 1) / s.block_n;
  const auto bucket_of = [&](const WorkItem& item) {
    const int64_t blocks = min(item.n_end - item.n_begin, max_blocks);
    const int level = static_cast<int>(blocks * levels / (max_blocks + 1));
    return item.head * levels + levels - 1 - level;
  };

  page.bucket[threadIdx.x] = 0;
  __syncthreads();
  for_each_item(p, s, total_keys, num_groups, page,
                [&](const WorkItem& item) { atomicAdd(&page.bucket[bucket_of(item)], 1); });

  const int count = page.bucket[threadIdx.x];
  const int begin = static_cast<int>(block_sum_before(static_cast<int64_t>(count), page.scratch));
  page.bucket[threadIdx.x] = begin;
  if (threadIdx.x % levels == 0 && threadIdx.x / levels < num_groups) {
    schedule->group_begin[threadIdx.x / levels] = begin;
  }
  if (threadIdx.x == kThreads - 1) {
    schedule->num_items = begin + count;
    schedule->num_groups = num_groups;
    schedule->group_begin[num_groups] = begin + count;
    const int64_t kv_heads = max(s.kv_budget_bytes / max(head_bytes, int64_t{1}), int64_t{1});
    schedule->heads_per_section =
        static_cast<int>(min(kv_heads * s.head_tiles_per_kv_head, int64_t{s.num_head_tiles}));
    schedule->next_work = 0;
  }
  __syncthreads();
  for_each_item(p, s, total_keys, num_groups, page, [&](const WorkItem& item) {
    schedule->items[atomicAdd(&page.bucket[bucket_of(item)], 1)] = item;
  });
}

}  // namespace

cudaError_t launch_prepare(const AttentionParams& p, const ScheduleParams& schedule_params,
                           Schedule* schedule, cudaStream_t stream) {
  prepare_kernel<<<1, kThreads, 0, stream>>>(p, schedule_params, schedule);
  return cudaGetLastError();
}

}  // namespace attnbench::sm90_prefill
