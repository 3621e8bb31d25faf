// Walks cases through the stages: the one way from a case to a record.
#pragma once

#include <functional>
#include <string>

#include "harness/record/record.h"
#include "harness/session/plan.h"

namespace attnbench {

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
