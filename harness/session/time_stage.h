// The part of a session that takes times: of a workload that is already verified.
#pragma once

#include <cstdint>

#include "harness/run/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// Times `launcher` on `workload` (and on copies of both, where a rotating cache needs them), then looks at
/// what the timed launches left behind: the same bits as the verified launch, whose digest is `verified`, or
/// another comparison; no damage to inputs or guards. Fills time, roofline, and where something is wrong
/// status and reason.
void time_stage(const WorkItem& work, Device& device, const SessionOptions& options, Workload& workload,
                Launcher& launcher, uint64_t verified, Record& record);

}  // namespace attnbench
