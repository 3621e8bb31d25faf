// Experiments on a wrong case: launches with one thing changed, which tell one cause from another.
#pragma once

#include <cstdint>

#include "harness/judge/verify.h"
#include "harness/launch/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// What the experiments on a case may take, in seconds. None begins that would take longer, if it is as long as the one
/// before it.
inline constexpr double kExperimentSeconds = 2;
/// The same for the launches that measure weights of keys.
inline constexpr double kWeightSeconds = 3;
/// Failing cases of a run that get experiments (WorkItem::experiments).
inline constexpr int kMostExperiments = 10;

/// Whether they looked for the cause of this record: a launch was wrong, not only an invariant.
bool took_experiments(const Record& record);

/// How a clue begins that tells of a second launch with another result.
inline constexpr const char* kSecondLaunch = "a second launch on the same inputs";
/// The only clue of a case that was wrong after others, and is right in a process of its own.
inline constexpr const char* kPassesAlone =
    "the case passes alone in a new process, and so does the line that reproduces it: the kernel keeps something from "
    "an earlier case, such as a static variable or memory that it does not clear";

/// Adds to the clues of a wrong case what further launches show: whether the same launch repeats its bits, and what NaN
/// and infinity in O come from. `first` and `digest` are of the wrong launch. Leaves other outputs.
void tell_by_launches(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                      const SessionOptions& options, const Check& check, const HostOutputs& first,
                      uint64_t digest, Verdict& v);

}  // namespace attnbench
