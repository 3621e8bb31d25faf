// The part of a session that checks the results of a launch.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/launch/launcher.h"
#include "harness/session/phase.h"
#include "harness/session/plan.h"

namespace attnbench {

/// Poisons the outputs, launches once, compares the outputs and looks at the guards. Then checks invariants
/// if they are requested. Sets `digest` to the digest of the outputs that were compared.
Verdict checked_launch(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                       const SessionOptions& options, const OnPhase& begins, uint64_t& digest);

/// The verdict on a case that the kernel must refuse. It is asked by `supports`, and if it takes the launch
/// there, by `plan` and `launch` with tensors, which `fits` may first refuse to make: then nullopt is returned,
/// and `why_not` says why. A refusal has words and leaves memory as it was.
std::optional<Verdict> expected_refusal(const WorkItem& work, Device& device, CheckMode check,
                                        const OnPhase& begins, SkipReason& why_not);

/// Checks the buffers of the timed launches: their last contents must be right too. The same bits as in the
/// verified launch, whose digest is `verified`, need no second comparison; other bits are compared again, in
/// rows that `rows_seed` draws.
Verdict check_after_timing(const Workload& workload, const Launcher& launcher, uint64_t verified,
                           uint64_t rows_seed);

/// What the wrong rows of the outputs have in common. Clues are an aid: their cost or failure must not turn a
/// wrong result into an error or a timeout, so there may be none.
std::vector<std::string> clues_or_none(const Case& item, const HostOutputs& outputs, const Launcher& launcher,
                                       const Verdict& v);

/// Checks what launches must leave intact: guards, workspace and inputs. Damage fails the verdict. If the
/// verdict has another reason already, the damage is the first of its clues, so that people see both.
void look_at_memory(const Workload& workload, const Launcher& launcher, Verdict& v);

}  // namespace attnbench
