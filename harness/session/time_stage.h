// The timing stage of a session, for a workload that is already verified.
#pragma once

#include <cstdint>
#include <span>

#include "harness/launch/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// Times a launch, and copies of it if a rotating cache needs them. Its tensors get other values. Then checks what the
/// timed launches left: the same bits as the verified launch, whose digest is `verified`, or right by a new
/// comparison; inputs and guards intact. Fills time and roofline, and status and reason if something is
/// wrong.
void time_stage(const WorkItem& work, Device& device, const SessionOptions& options, BoundLaunch& bound,
                uint64_t verified, Record& record);

/// Computes the rates and shares of this device's timed records anew: a time that beat the ceilings may have had them
/// measured again, and all shares are then of the new `ceilings`. Each status stays.
void renew_rooflines(const Ceilings& ceilings, CacheMode cache, const DeviceInfo& device,
                     std::span<Record> records);

}  // namespace attnbench
