// Host side of a launch with a given instance. The kernel of sm90_prefill.h also chooses the instance.
#pragma once

#include <algorithm>

#include "kernels/contract/kernel.h"
#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_prefill {

/// The instance that leaves tiles whole for `p`, null if none: without a mask the row of instances.def with masked =
/// false, if there is one, else the last row that fits. `one_level`: one of sm90_prefill_one_level. `multiprocessors`
/// (default: of an H100) only decides between instances whose tiles and results are the same.
const Instance* find_instance(const AttentionParams& p, bool one_level = false, int multiprocessors = 132);

/// The same, or the instance that reads keys once that all sequences share, or that splits where tiles are too
/// few for the GPU.
const Instance* choose_instance(const AttentionParams& p, const LaunchContext& context);

/// The instance that runs `p` for sm90_prefill_fixed: one with Instance::listed where sequences may be split.
const Instance* choose_fixed_instance(const AttentionParams& p, int multiprocessors = 132);

/// Query heads of one KV head that a tile packs into its rows: the largest divisor of G that leaves at most
/// 1/16 of the block_m rows unused.
int heads_per_tile(int num_heads_q, int num_heads_kv, int block_m);

/// Numerics::mma_roundoff of products in e4m3 (README.md).
inline constexpr double kE4m3Roundoff = 0x1p-13;

/// Kernel::tile of launches with `instance`; null: none.
inline Tile tile_of(const Instance* instance, const AttentionParams& p) {
  if (instance == nullptr) return {};
  const int heads = heads_per_tile(p.num_heads_q, p.num_heads_kv, instance->block_m);
  return {instance->block_m / heads, heads, instance->block_m, instance->block_n};
}

/// Query tokens of a tile.
inline int tokens_per_tile(const Instance& instance, const AttentionParams& p) {
  return instance.block_m / heads_per_tile(p.num_heads_q, p.num_heads_kv, instance.block_m);
}

/// Query tokens of a tile by which fixed_division() counts works: those of narrow tiles, so that splits do not depend on
/// which tiles run.
inline int division_tokens(const Instance& instance, const AttentionParams& p) {
  const int rows = instance.wide ? kNarrowTileRows : instance.block_m;
  return rows / heads_per_tile(p.num_heads_q, p.num_heads_kv, rows);
}

/// Head tiles of a query token.
inline int num_head_tiles(const Instance& instance, const AttentionParams& p) {
  return p.num_heads_q / heads_per_tile(p.num_heads_q, p.num_heads_kv, instance.block_m);
}

/// Upper bound of a launch's whole tiles, over all ways to divide total_q into batch sequences; items are as many, in a
/// listed launch max_fixed_states() more at most. For a wide instance also one for narrow tiles, so that a workspace for
/// many queries is enough for fewer.
inline int64_t max_items(const Instance& instance, const AttentionParams& p) {
  const int tokens = std::min(tokens_per_tile(instance, p), division_tokens(instance, p));
  return p.total_q / tokens + p.batch;
}

/// Upper bound of the partial states of a launch with a listed instance, counted for one head tile.
int64_t max_fixed_states(const Instance& instance, const AttentionParams& p);

/// Device bytes for the schedule of a launch and, if the instance splits, for partial states.
std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p,
                               const LaunchContext& context);

/// The arguments of the kernels of a launch.
struct Launch {
  ScheduleParams schedule_params;
  Maps maps;
  KernelParams params;
  int blocks;
};

/// Fills `launch`. Arguments are as for launch_instance, and `p` has a sequence and a query. `draw_first`:
/// KernelParams.
KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         int64_t kv_budget_bytes, int32_t skip_q_len, bool draw_first, KernelMessage* message,
                         Launch* launch);

/// What Kernel::plan does for launches with `instance`, in a workspace that is large enough.
KernelStatus plan_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                           KernelMessage* message);

/// Refuses a launch that needs what plan_instance prepares, and whose workspace has no such plan.
KernelStatus check_plan(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                        KernelMessage* message);

/// Enqueues the kernels. `supports` accepts `p`, and `instance` can run it. `kv_budget_bytes`: keys and
/// values that are worked on together (KvBudget). Sequences of at most `skip_q_len` queries are left to
/// another kernel. `placed` is null where the launch has the GPU for itself. Otherwise it is an event that is
/// recorded when another kernel has its multiprocessors: the attention kernel waits for it, and the schedule
/// is made meanwhile.
KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             int64_t kv_budget_bytes, int32_t skip_q_len, KernelMessage* message,
                             cudaEvent_t placed = nullptr);

/// A part of Hopper's 50 MB of L2, which holds queries and outputs too.
inline constexpr int64_t kKvBudgetBytes = 16 << 20;

}  // namespace attnbench::sm90_prefill
