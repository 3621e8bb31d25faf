// Host side of a launch with a given instantiation; what sm90_decode.h offers chooses the instantiation too.
#pragma once

#include <cstddef>

#include "kernels/contract/kernel.h"
#include "kernels/cuda/sm90_decode/instances.h"

namespace attnbench::sm90_decode {

/// How the work is divided. Any choice is correct; the same must be used for workspace, plan and launch.
struct Division {
  int min_units = 1;        ///< least units of a part (partition.cuh)
  int segment_cost = 0;     ///< units that beginning a sequence counts as
  int max_parts = 1 << 20;  ///< per KV head
  int unit_shift = 0;       ///< a unit is 2^unit_shift tiles
  /// Every unit a split of its own: how a sequence is cut then depends on its own lengths alone.
  bool split_every_unit = false;
};

/// The smallest instance that can do `p`, null if none. `use`: beside those for all launches, those for few
/// blocks may be chosen, or (kLong) those for long launches where `p` is one. The same must be used for
/// workspace, plan and launch.
const Instance* find_instance(const AttentionParams& p, Use use);

/// Device bytes for counters and partial results.
std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p,
                               const LaunchContext& context, const Division& division);

/// Makes the workspace ready for any number of launches: enqueues writes to the counters and the places for
/// states.
KernelStatus plan_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                           const Division& division, KernelMessage* message);

/// Refuses a launch whose workspace has no plan, or one for another layout or stream: counters and places for
/// states would hold what the kernel waits on for ever. `context` is the one that the caller was given.
KernelStatus check_plan(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                        const Division& division, KernelMessage* message);

/// Says that something else is about to write to the workspace, which then needs a new plan.
void forget_plan(const LaunchContext& context);

/// What the kernel gets.
struct Launch {
  Maps maps;
  KernelParams params;
};

/// Makes it. `p` is one that `supports` accepts, that `instance` can do, and of some sequence and query.
KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         const Division& division, KernelMessage* message, Launch* launch);

/// Enqueues the kernel. `p` is one that `supports` accepts and that `instance` can do.
/// `started`, if not null, is recorded once all blocks have begun.
KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             const Division& division, KernelMessage* message, cudaEvent_t started = nullptr);

}  // namespace attnbench::sm90_decode
