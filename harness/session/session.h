// Walks cases through the stages: the one way from a case to a record.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/record/record.h"
#include "harness/run/launcher.h"
#include "harness/timing/timing.h"
#include "harness/verify/verify.h"

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

/// The `attnbench run ...` line that reproduces one record alone.
std::string repro_line(const WorkItem& work, const std::string& device, const SessionOptions& options);

/// What a crash of this item is told with: "case attention/..., kernel mine of /x/mine.so".
std::string in_hand_text(const WorkItem& work, const SessionOptions& options);

/// The element types whose ceilings a timed run needs.
const std::vector<DType>& ceiling_dtypes();

/// A record of the item with nothing found yet: a skip without a reason.
Record empty_record(const WorkItem& work, const std::string& device, const SessionOptions& options);
/// The record of an item without a kernel.
Record no_kernel_record(const WorkItem& work, const std::string& device, const SessionOptions& options);

/// Takes one item through workload, run, verify, timing and verify again. Never throws for what the case or
/// kernel did: that becomes the record's status and reason. Sets `device_lost` when no further case can run.
/// `before` is called with the repro line before anything runs.
Record run_item(const WorkItem& work, Device& device, const SessionOptions& options, bool& device_lost,
                const std::function<void(const std::string& repro)>& before = {});

}  // namespace attnbench
