// Which rank of path dcp left a wrong state, for the message about a wrong output.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "kernels/contract/merge_params.h"

namespace attnbench {

/// The states of all ranks on the host, laid out as `layout` says. Its pointers are not used.
struct RankStates {
  const MergeStatesParams& layout;
  std::span<const unsigned char> out;
  std::span<const float> lse;
};

/// Compares the state of each rank with the reference over the rank's keys, in at most 48 rows. Returns
/// sentences that name the ranks whose states are wrong, and how; or one that says that all are right, so that
/// what follows the attention is at fault.
std::vector<std::string> rank_clues(const Case& c, const RankStates& states);

}  // namespace attnbench
