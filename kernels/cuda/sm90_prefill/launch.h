// Host side of a launch with a given instantiation; what sm90_prefill.h offers chooses the instantiation too.
#pragma once

#include "kernels/contract/kernel.h"
#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_prefill {

/// The first instance that can do `p`, null if none.
const Instance* find_instance(const AttentionParams& p);

/// Query heads of one KV head that a tile packs into its rows: the largest divisor of G that leaves at most
/// 1/16 of the block_m rows unused.
int heads_per_tile(int num_heads_q, int num_heads_kv, int block_m);

/// Device bytes for the schedule of a launch.
std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p);

/// What both kernels get.
struct Launch {
  ScheduleParams schedule_params;
  Maps maps;
  KernelParams params;
  int blocks;
};

/// Makes it, as for launch_instance, of some sequence and query.
KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         int64_t kv_budget_bytes, int32_t skip_q_len, bool draw_first, KernelMessage* message,
                         Launch* launch);

/// Enqueues both kernels. `p` is one that `supports` accepts and that `instance` can do. `kv_budget_bytes`:
/// keys and values worked on together (WorkSource). Sequences of at most `skip_q_len` queries are left alone.
/// `placed`: null where the launch has the GPU for itself; else an event of another kernel, recorded when
/// that has its multiprocessors: the attention kernel waits for it, the schedule is made meanwhile.
KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             int64_t kv_budget_bytes, int32_t skip_q_len, KernelMessage* message,
                             cudaEvent_t placed = nullptr);

/// A part of Hopper's 50 MB of L2, which holds queries and outputs too.
inline constexpr int64_t kKvBudgetBytes = 16 << 20;

}  // namespace attnbench::sm90_prefill
