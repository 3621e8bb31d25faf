// What a run is asked to do, in a form that two processes or two machines can hold against each other: a run
// that goes on where another stopped, and the shards of one sweep.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/record/record.h"
#include "harness/run/skip_reason.h"
#include "harness/timing/timing.h"
#include "harness/verify/verify.h"
#include "kernels/registry.h"

namespace attnbench {

struct SessionOptions {
  CheckMode check = CheckMode::kSampled;
  bool invariants = false;       ///< check_invariants after the first launch
  int64_t invariants_every = 1;  ///< only of items whose index is a multiple of it
  int repeats = 2;               ///< launches that must agree, of the invariant "repeat"
  bool capture_replay =
      true;  ///< the invariant "replay" captures a graph; false for launches that read memory
  bool all_detectors = false;  ///< look on after a failure, so that failed_by holds all that fire
  bool time = true;
  bool counters = false;  ///< after timing, count launches with the hardware's counters
  TimingOptions timing;
  bool wants_ceilings() const { return time && timing.ceilings; }
  KernelTable table{};  ///< the program's kernels, plug-ins included: some merge the partial states of a path
  std::vector<std::string> kernels;                ///< names; empty: all of the device
  std::vector<std::string> plain_args;             ///< options to repeat in a repro line ("--check full")
  std::map<const Kernel*, std::string> plugin_of;  ///< files of kernels that are not the program's own
};

/// One case on one kernel: what a session walks through, in order.
struct WorkItem {
  const Case* item;
  const Kernel* kernel;  ///< null: no kernel of the device does this op
  int64_t index = 0;     ///< place in the plan of the whole sweep
};

std::vector<WorkItem> plan_session(const std::vector<Case>& cases, KernelTable table, DeviceKind device,
                                   const std::vector<std::string>& kernel_names);

/// Why an item without a kernel is skipped; `chosen`: only kernels of some names are run.
SkipReason no_kernel(Op op, const std::string& device, bool chosen);

/// The `attnbench run ...` line that reproduces one record alone.
std::string repro_line(const WorkItem& work, const std::string& device, const SessionOptions& options);

/// What a crash of this item is told with: "case attention/..., kernel mine of /x/mine.so".
std::string in_hand_text(const WorkItem& work, const SessionOptions& options);

/// The element types whose ceilings a timed run needs.
const std::vector<DType>& ceiling_dtypes();

/// 16 hexadecimal digits that tell plans apart: ids, kernels and seeds of all items, in order.
std::string plan_digest(const std::vector<WorkItem>& work);

/// The share of shard `index` (from 1) of `count`: whole cases with all their kernels, in the order of the
/// plan. Shares are balanced by estimated cost and depend on ids and costs alone, so that every machine
/// comes to the same ones.
std::vector<WorkItem> shard_of(const std::vector<WorkItem>& work, DeviceKind device, int index, int count);

/// Sets plan, planned and shard of a context. `whole` is the plan of all shards, `share` this run's part.
void describe_plan(RunContext& context, const std::vector<WorkItem>& whole,
                   const std::vector<WorkItem>& share, const SessionOptions& options);

}  // namespace attnbench
