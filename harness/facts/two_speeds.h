// Tells whether samples of one kernel fall into two groups, as if it ran at two speeds.
#pragma once

#include <optional>
#include <vector>

namespace attnbench {

/// Two groups of samples, in the unit of the samples.
struct TwoSpeeds {
  double quick;        ///< median of the lower group
  double slow;         ///< median of the upper group
  double quick_share;  ///< of the samples, 0 .. 1
};

/// The two groups, if there are at least 40 samples, each group has 15 % of them, the medians are 3 % apart, and the gap
/// between the groups is as wide as either of them. Widths and the gap leave out a tenth at each end of a group. A kernel
/// of two speeds has a median that changes from run to run by more than its interval says.
std::optional<TwoSpeeds> two_speeds(std::vector<double> samples);

}  // namespace attnbench
