// Launches whose V tell keys, heads and channels apart, so that O shows the weight of each key.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/launch/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// What such launches of a wrong case, or of its worst sequence alone, show, in sentences. Empty if the case cannot be
/// asked so, if there is too little time, or if it is right with normal data. `launch_s`: what a launch of the case took,
/// `seconds_left`: for all launches.
std::vector<std::string> clues_of_weights(const WorkItem& work, Device& device, KernelTable table,
                                          const Launcher& launcher, int worst_seq, double launch_s,
                                          const std::function<double()>& seconds_left);

}  // namespace attnbench
