// The plan of a run, in a form that two processes or two machines can compare. Examples are a run and the run
// that resumes it, and the shards of one sweep.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/facts/declared_types.h"
#include "harness/facts/skip_reason.h"
#include "harness/judge/verify.h"
#include "harness/results/record.h"
#include "harness/session/phase.h"
#include "harness/timing/timing.h"
#include "kernels/registry.h"

namespace attnbench {

struct SessionOptions {
  CheckMode check = CheckMode::kSampled;
  Required required;             ///< an attention kernel that declares less fails
  bool invariants = false;       ///< run check_invariants after the first launch
  int64_t invariants_every = 1;  ///< only for items whose index is a multiple of this
  int repeats = 2;               ///< launches that must agree in the invariant "repeat"
  bool capture_replay = true;    ///< "replay" captures a graph; false for launches that read memory
  bool all_detectors = false;  ///< continue after a failure, so that failed_by lists all detectors that fire
  bool time = true;
  bool counters = false;  ///< after timing, read the hardware's counters of a launch
  TimingOptions timing;
  bool wants_ceilings() const { return time && timing.ceilings; }
  KernelTable table{};  ///< the program's kernels and plug-ins; some paths also need a merge_states kernel
  std::vector<std::string> kernels;  ///< names; empty: all kernels of the device
  /// Options that change a record ("--check full"): in repro lines, and --resume compares them.
  std::vector<std::string> plain_args;
  /// --timeout, if given: in repro lines, but no part of the plan, so that a run which goes on may change it.
  std::optional<double> timeout_s;
  std::string dump;  ///< --dump: folder for the files of the one case of the run; empty: none are written
  std::map<const Kernel*, std::string> plugin_of;  ///< files of the kernels that come from plug-ins
};

/// One case on one kernel. A session runs its items in order.
struct WorkItem {
  const Case* item;
  const Kernel* kernel;     ///< null: no kernel of the device does this op
  int64_t index = 0;        ///< position in the plan of the whole sweep
  bool experiments = true;  ///< if it fails: whether further launches look for the cause (experiments.h)
};

std::vector<WorkItem> plan_session(const std::vector<Case>& cases, KernelTable table, DeviceKind device,
                                   const std::vector<std::string>& kernel_names);

/// Why an item without a kernel is skipped; `chosen`: only kernels of some names are run.
SkipReason no_kernel(Op op, const std::string& device, bool chosen);

/// The `attnbench run ...` line that reproduces one record alone.
std::string repro_line(const WorkItem& work, const std::string& device, const SessionOptions& options);

/// What a reader of a crash may not know of the case: "; if it reads block_table where it should not: only the
/// first ... lead anywhere ..."; empty where it has no block_table, as the invariant in hand may have. Before a launch no
/// kernel reads it: "; nothing had been launched".
std::string crash_advice(const CaseParams& params, const Reached& reached);

/// What a crash report says of this item: "case attention/..., kernel mine of /x/mine.so".
std::string in_hand_text(const WorkItem& work, const SessionOptions& options);

/// Element types whose matrix products a timed run measures, as far as the device has them.
const std::vector<DType>& ceiling_dtypes();

/// 16 hexadecimal digits that identify a plan: a digest of the ids, kernels and seeds of all items, in order.
std::string plan_digest(const std::vector<WorkItem>& work);

/// The share of shard `index` (from 1) of `count`: whole cases with all their kernels, in the order of the
/// plan. Shares are balanced by estimated cost. They depend only on ids and costs, so every machine computes
/// the same ones.
std::vector<WorkItem> shard_of(const std::vector<WorkItem>& work, DeviceKind device, int index, int count);

/// Sets `plan` and `planned` of a context. `whole` is the plan of all shards, `share` the part of this run.
void describe_plan(RunContext& context, const std::vector<WorkItem>& whole,
                   const std::vector<WorkItem>& share, const SessionOptions& options);

}  // namespace attnbench
