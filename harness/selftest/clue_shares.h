// How often clues name the mistake of a fault, and how often another one.
#pragma once

#include <string>
#include <vector>

#include "harness/selftest/selftest.h"

namespace attnbench {

/// The clues about a fault on a kernel, over the fault's cases and the seeds. Cases count whose own launch the reference
/// finds wrong. A clue is right if it has the words of the fault (Fault::clue, or of the mistake of its name); any other one that says "looks like" or "checked by" is
/// wrong, and one that says "perhaps" neither.
struct ClueShare {
  std::string fault, kernel;  ///< fault: "mask/causal_top_left"
  int64_t cases = 0;
  int64_t named = 0, misnamed = 0;  ///< cases with a right clue; with a wrong one and no right one
  std::vector<std::string>
      seen;  ///< the clues of cases that are misnamed and, if no case is named, of the first
};

/// All faults by which some case computes something wrong. Takes kernels, seeds, chosen, progress and stop of the options.
std::vector<ClueShare> measure_clues(KernelTable table, Device& device, const SelftestOptions& options);

/// "clues name 10 of 20 faults (50 %) in some case, and something else in 1 of 90 cases (1.1 %)".
std::string clue_summary(const std::vector<ClueShare>& shares);

}  // namespace attnbench
