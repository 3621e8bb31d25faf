// The part of a session that judges what a launch left behind.
#pragma once

#include <cstdint>

#include "harness/run/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// One checked launch: outputs poisoned before, compared and guards looked at after. Then its invariants,
/// where they are asked for. `digest`: of the outputs that were judged.
Verdict checked_launch(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                       const SessionOptions& options, uint64_t& digest);

/// After timing, the buffers that were timed: their last contents must be right too. The same bits as the
/// verified launch, whose digest is `verified`, need no second comparison; other bits are judged afresh.
Verdict check_after_timing(const Workload& workload, const Launcher& launcher, uint64_t verified);

}  // namespace attnbench
