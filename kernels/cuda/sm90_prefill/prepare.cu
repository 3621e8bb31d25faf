#include "kernels/cuda/sm90_prefill/prepare.h"

#include <cuda_runtime.h>

#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"
#include "kernels/cuda/sm90_prefill/few_sequences.cuh"
#include "kernels/cuda/sm90_prefill/split.h"

namespace attnbench::sm90_prefill {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBuckets = kThreads;  // one per thread in the scan

/// Returns the sum of the values of the lanes before this one. `total` receives the sum of all lanes.
template <class T>
__device__ T warp_sum_before(T value, T* total) {
  const T before = sum_of_lanes_before(value, threadIdx.x % 32);
  *total = __shfl_sync(~0u, before + value, 31);
  return before;
}

/// Returns the sum of the values of the threads before this one. `total` receives the sum of all threads.
/// `scratch` has one value per warp, which no thread has read or written since the last barrier.
template <class T>
__device__ T block_sum_before(T value, T* scratch, T* total) {
  const int lane = threadIdx.x % 32;
  T of_warp;
  const T before = warp_sum_before(value, &of_warp);
  if (lane == 0) scratch[threadIdx.x / 32] = of_warp;
  __syncthreads();
  // Each warp sums the totals of the warps by itself, which saves a barrier.
  const T warps_before = warp_sum_before(lane < kWarps ? scratch[lane] : T{0}, total);
  return before + __shfl_sync(~0u, warps_before, threadIdx.x / 32);
}

/// A page of sequences in shared memory: kThreads neighbouring sequences of the batch, one per thread. It is
/// not a KV page.
struct Page {
  int64_t scratch[2][kWarps];
  int64_t split_scratch[kWarps];
  int bucket_scratch[kWarps];
  int first_item[kThreads];  ///< items of the page's sequences before this one: tiles, or their splits
  SeqRange range[kThreads];
  int kv_base[kThreads];
  int group[kThreads];
  int first_split_tile[kThreads];  ///< split tiles of all sequences before this one
  int first_state[kThreads];       ///< their states
  int bucket[kBuckets];
};

/// The sequence of the page that has item `index`: the last one whose first item is at or before it.
__device__ int sequence_of_item(const Page& page, int index) {
  int i = 0;
#pragma unroll
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (page.first_item[i + step] <= index) i += step;
  }
  return i;
}

/// The tiles of a sequence, whole unless kSplits.
template <bool kSplits>
__device__ Division divide(const ScheduleParams& s, const SeqRange& range) {
  const int tiles = (range.q_len + s.tokens_per_tile - 1) / s.tokens_per_tile;
  if (!kSplits) return {tiles, 1, 0};
  const int counted = (range.q_len + s.division_tokens - 1) / s.division_tokens;
  Division d = fixed_division(counted, s.num_head_tiles, (range.k_len + s.block_n - 1) / s.block_n);
  d.tiles = tiles;
  return d;
}

/// Item `index` of sequence i of the page. Tiles of a split follow each other.
template <bool kSplits>
__device__ WorkItem make_item(const AttentionParams& p, const ScheduleParams& s, const Page& page, int i,
                              int index) {
  const SeqRange range = page.range[i];
  const Division d = divide<kSplits>(s, range);
  const int split = kSplits ? index / d.tiles : 0;
  const int tile = index - split * d.tiles;
  const int first = tile * s.tokens_per_tile;
  const int tokens = min(s.tokens_per_tile, range.q_len - first);
  const KeyBounds keys = window_keys_of_rows(p, first, first + tokens - 1, range.q_len, range.k_len);
  WorkItem item;
  item.q_row = range.q_begin + first;
  item.q_tokens = static_cast<uint8_t>(tokens);
  item.state = 0;
  item.diagonal = first + range.k_len - range.q_len;
  item.k_len = range.k_len;
  item.kv_base = page.kv_base[i];
  item.n_begin = keys.begin / s.block_n;
  item.n_end = (keys.end + s.block_n - 1) / s.block_n;
  if (kSplits && d.splits > 1) {
    const int state = page.first_state[i] + tile * d.splits + split;
    item.state = static_cast<uint16_t>(state + 1);
    item.n_begin = split * d.length;
    item.n_end = min(item.n_begin + d.length, item.n_end);
    if (split == 0) s.split_tiles[page.first_split_tile[i] + tile] = {item.q_row, tokens, d.splits, state};
  }
  item.expired = expired_keys(first, item.diagonal, s.reach_left, item.n_begin, s.block_n);
  item.head = page.group[i];
  return item;
}

/// How tiles are sorted: by group, then by level, so that tiles of the most KV blocks come first.
struct Order {
  int64_t total_keys;
  int num_groups;
  int levels;              ///< levels per group, of tiles by their number of KV blocks
  float levels_per_block;  ///< 1; less if tiles may have more KV blocks than there are levels

  __device__ Order(const ScheduleParams& s, int64_t keys, int max_seqlen_k) : total_keys(keys) {
    const int64_t head_bytes = keys * s.kv_budget.token_bytes;
    num_groups = 1;
    if (head_bytes > s.kv_budget.bytes) {
      num_groups = static_cast<int>(
          min((head_bytes + s.kv_budget.bytes - 1) / s.kv_budget.bytes, int64_t{kMaxGroups}));
    }
    levels = kBuckets / num_groups;
    const int most_blocks = (max_seqlen_k + s.block_n - 1) / s.block_n;
    levels_per_block = most_blocks < levels ? 1.0f : static_cast<float>(levels) / (most_blocks + 1);
  }

  /// The group of a sequence, by its first key: neighbouring sequences share a group.
  __device__ int group_of(int64_t key) const {
    if (num_groups == 1) return 0;
    return static_cast<int>(min(key * num_groups / total_keys, int64_t{num_groups - 1}));
  }

  __device__ int bucket_of(const WorkItem& item) const {
    const int blocks = max(item.n_end - item.n_begin, 0);  // a split may lie right of all that a tile sees
    const int level = static_cast<int>(static_cast<float>(blocks) * levels_per_block);
    return item.head * levels + levels - 1 - min(level, levels - 1);
  }
};

/// Lengths of sequence b; zeros where it is left to another kernel (skip_q_len).
__device__ SeqRange own_range(const AttentionParams& p, const ScheduleParams& s, int b) {
  const SeqRange range = full_slot_range(p, b);
  return range.q_len > s.skip_q_len ? range : SeqRange{range.q_begin, 0, 0};
}

/// What the sequences before a page have.
struct Before {
  int64_t keys = 0;
  int64_t split = 0;  ///< split tiles in the high 32 bits, states in the low ones
};

/// Fills the page with the sequences from `first` on. All threads call it, between barriers that separate it
/// from readers of the previous page. Returns the page's number of items, and adds what it has to `before_page`.
template <bool kSplits>
__device__ int fill_page(const AttentionParams& p, const ScheduleParams& s, int first, Page& page,
                         Before& before_page, Order* order) {
  const int b = first + threadIdx.x;
  const bool exists = b < p.batch;
  const SeqRange range = exists ? own_range(p, s, b) : SeqRange{0, 0, 0};
  const int base = exists ? s.kv_bases.of(b) : 0;
  const Division d = divide<kSplits>(s, range);
  // One scan sums items (high 32 bits) and keys (low 32 bits). A page has fewer than 2^31 items. Keys decide
  // only the order, so each sequence counts with at most 2^22 of them, and a page has fewer than 2^32.
  const int counted_keys = min(range.k_len, 1 << 22);
  int64_t total;
  const int64_t before = block_sum_before(static_cast<int64_t>(d.tiles * d.splits) << 32 | counted_keys,
                                          page.scratch[0], &total);
  const int64_t page_keys = total & 0xffffffff;
  // If one page holds all sequences, its keys are the total on which the order depends.
  if (p.batch <= kThreads) *order = Order(s, page_keys, p.max_seqlen_k);
  page.range[threadIdx.x] = range;
  page.kv_base[threadIdx.x] = base;
  page.first_item[threadIdx.x] = static_cast<int>(before >> 32);
  page.group[threadIdx.x] = order->group_of(before_page.keys + (before & 0xffffffff));
  before_page.keys += page_keys;
  if constexpr (kSplits) {
    int64_t all;
    const int64_t own = d.splits > 1 ? static_cast<int64_t>(d.tiles) << 32 | d.tiles * d.splits : 0;
    const int64_t split = before_page.split + block_sum_before(own, page.split_scratch, &all);
    page.first_split_tile[threadIdx.x] = static_cast<int>(split >> 32);
    page.first_state[threadIdx.x] = static_cast<int>(split);
    before_page.split += all;
  }
  return static_cast<int>(total >> 32);
}

/// Sorts all tiles by counting, in one block. The first pass counts the tiles of each bucket, the second
/// places them. The order within a bucket is arbitrary and changes no result. Both passes are the same code,
/// because most of the time goes to fetching instructions that no cache holds.
/// kSplits: sequences are split by their own lengths.
template <bool kSplits>
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(const __grid_constant__ AttentionParams p, const ScheduleParams s, Schedule* schedule) {
  // The attention kernel may start meanwhile.
  if constexpr (!kSplits) cudaTriggerProgrammaticLaunchCompletion();
  __shared__ Page page;

  if (!kSplits && p.batch <= kMaxFewSequences && s.skip_q_len == 0) {
    const int lane = threadIdx.x % 32;
    if (needs_no_list(sum_of_keys(lane < p.batch ? full_slot_range(p, lane).k_len : 0), s.kv_budget)) {
      if (threadIdx.x == 0) schedule->next_work = s.first_drawn;
      return;
    }
  }

  page.bucket[threadIdx.x] = 0;
  Order order(s, 0, p.max_seqlen_k);
  if (p.batch > kThreads) {
    int64_t keys = 0, total;
    for (int b = threadIdx.x; b < p.batch; b += kThreads) keys += own_range(p, s, b).k_len;
    block_sum_before(keys, page.scratch[1], &total);
    order = Order(s, total, p.max_seqlen_k);
  }

  int items = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    Before before;
#pragma unroll 1
    for (int first = 0; first < p.batch; first += kThreads) {
      if (pass == 0 || p.batch > kThreads) {  // otherwise the page is still there
        __syncthreads();
        items = fill_page<kSplits>(p, s, first, page, before, &order);
        __syncthreads();
      }
#pragma unroll 1
      for (int index = threadIdx.x; index < items; index += kThreads) {
        const int i = sequence_of_item(page, index);
        const WorkItem item = make_item<kSplits>(p, s, page, i, index - page.first_item[i]);
        const int place = atomicAdd(&page.bucket[order.bucket_of(item)], 1);
        if (pass == 1) schedule->items[place] = item;
      }
    }
    __syncthreads();
    if (pass == 1) break;
    // A kernel that starts within some 1 us of the one before it may fetch its code slowly, for 10 us (LADDER.md). This
    // one needs the whole list, so it loses nothing by starting only now.
    if constexpr (kSplits) cudaTriggerProgrammaticLaunchCompletion();

    // Turns counts into the place of each bucket's first tile.
    int num_items;
    const int begin = block_sum_before(page.bucket[threadIdx.x], page.bucket_scratch, &num_items);
    page.bucket[threadIdx.x] = begin;
    if (threadIdx.x % order.levels == 0 && static_cast<int>(threadIdx.x) / order.levels < order.num_groups) {
      schedule->group_begin[threadIdx.x / order.levels] = begin;
    }
    if (threadIdx.x == 0) {
      schedule->num_items = num_items;
      schedule->num_groups = order.num_groups;
      if (kSplits) schedule->num_split_tiles = static_cast<int>(before.split >> 32);
      schedule->group_begin[order.num_groups] = num_items;
      schedule->heads_per_section =
          heads_per_section(order.total_keys, s.kv_budget, s.head_tiles_per_kv_head, s.num_head_tiles);
      schedule->next_work = s.first_drawn;
    }
    __syncthreads();
  }
}

}  // namespace

cudaError_t launch_prepare(const AttentionParams& p, const ScheduleParams& schedule_params,
                           Schedule* schedule, cudaStream_t stream) {
  const auto kernel = schedule_params.split_tiles != nullptr ? prepare_kernel<true> : prepare_kernel<false>;
  kernel<<<1, kThreads, 0, stream>>>(p, schedule_params, schedule);
  return cudaGetLastError();
}

}  // namespace attnbench::sm90_prefill
