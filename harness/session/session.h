// Takes a case through the stages to its record. There is no other way.
#pragma once

#include <functional>
#include <string>

#include "harness/results/record.h"
#include "harness/session/phase.h"
#include "harness/session/plan.h"

namespace attnbench {

/// A record of the item before anything is found: a skip without a reason.
Record empty_record(const WorkItem& work, const std::string& device, const SessionOptions& options);
/// That of a wrong result.
Record wrong_record(const WorkItem& work, const std::string& device, const SessionOptions& options,
                    const Verdict& v);
/// The record of an item without a kernel.
Record no_kernel_record(const WorkItem& work, const std::string& device, const SessionOptions& options);

/// Takes one item through workload, run, verify, timing and a second verify. Never throws for what the case
/// or the kernel did; the record's status and reason say it. Sets `device_lost` if no further case can run.
/// Calls `before` with the repro line before anything runs.
Record run_item(const WorkItem& work, Device& device, const SessionOptions& options, bool& device_lost,
                const std::function<void(const std::string& repro)>& before = {}, const OnPhase& begins = {});

}  // namespace attnbench
