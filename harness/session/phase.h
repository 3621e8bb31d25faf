// How far the run of a case on a kernel has come: what is known of it if it crashes or hangs.
#pragma once

#include <functional>
#include <string>

#include "harness/facts/verdict.h"

namespace attnbench {

enum class Phase {
  kSetup,      ///< supports, workspace, plan, inputs: nothing has been launched
  kLaunch,     ///< the first launch
  kCompare,    ///< its outputs are judged; a wrong case is launched again
  kInvariant,  ///< the result was right; other launches that must give the same one
  kTiming,     ///< timed launches: the result was right, if it was checked
};

struct Reached {
  Phase phase = Phase::kSetup;
  double launch_s = 0;         ///< wall time of the first launch; 0 before it has ended
  std::string invariant = {};  ///< kInvariant: the name of the one in hand
  /// kCompare: the result is wrong, and further launches look for the cause.
  const Verdict* wrong = nullptr;
};

/// Is called when a later phase, or another invariant, begins.
using OnPhase = std::function<void(const Reached&)>;

}  // namespace attnbench
