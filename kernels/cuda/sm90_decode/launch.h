// Host side of a launch with a given instance. The kernels of sm90_decode.h also choose the instance.
#pragma once

#include <cstddef>

#include "kernels/contract/kernel.h"
#include "kernels/cuda/sm90_decode/instances.h"

namespace attnbench::sm90_decode {

/// How the work is divided. Any choice is correct; the same must be used for workspace, plan and launch.
struct Division {
  int min_units = 1;        ///< least units of a part (partition.cuh)
  int segment_cost = 0;     ///< units counted for beginning a sequence
  int max_parts = 1 << 20;  ///< most parts per KV head
  int unit_shift = 0;       ///< a unit is 2^unit_shift tiles
  /// Every unit is a split of its own. Then the cuts of a sequence depend on its own lengths alone.
  bool split_every_unit = false;
};

/// Whether an instance runs `op` and `kernel`, one that decodes so, takes what it asks. Refusals name `kernel`.
KernelStatus check_supported(const Kernel& kernel, const OpParams& op, const LaunchContext& context,
                             KernelMessage* message);

/// The smallest instance that supports `p`, null if none. kAll allows the instances for all launches only.
/// kFewBlocks also allows those for few blocks, and kLong those for long launches if `p` is one. The same
/// `use` is required for workspace, plan and launch.
const Instance* find_instance(const AttentionParams& p, Use use);

/// find_instance(p, Use::kLong); or the instance for more rows, if sequences have so many splits that its blocks, which
/// share their merge, end sooner.
const Instance* choose_instance(const AttentionParams& p, const LaunchContext& context);

/// Device bytes for counters and partial results.
std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p,
                               const LaunchContext& context, const Division& division);

/// Prepares the workspace for any number of launches: enqueues writes to the counters and the places for
/// states.
KernelStatus plan_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                           const Division& division, KernelMessage* message);

/// Refuses a launch whose workspace has no plan, or one for another layout or stream. Without it, counters
/// and places for states would hold values on which the kernel waits for ever. `context` is the one that the
/// kernel's caller gave.
KernelStatus check_plan(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                        const Division& division, KernelMessage* message);

/// Forgets the workspace's plan, because something else is about to write there. The next launch needs a new
/// plan.
void forget_plan(const LaunchContext& context);

/// The arguments of the kernel.
struct Launch {
  Maps maps;
  KernelParams params;
};

/// Fills `launch`. `supports` accepts `p`, and `instance` can run it. `p` has a sequence, and queries or new
/// tokens.
KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         const Division& division, KernelMessage* message, Launch* launch);

/// Enqueues the kernel. `supports` accepts `p`, and `instance` can run it. `started`, if not null, is
/// recorded once all blocks have begun.
KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             const Division& division, KernelMessage* message, cudaEvent_t started = nullptr);

}  // namespace attnbench::sm90_decode
