// Invariants: relaunches of the same problem that must give the same result.
//
// Values are a pure function of logical coordinates, so a variant is the case in another layout.
// harness/judge/README.md lists which invariants hold bit for bit and which within the tolerance.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/facts/verdict.h"
#include "harness/launch/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

struct InvariantOptions {
  Check check = CheckMode::kSampled;  ///< for outputs that may differ in bits, and for merged outputs
  int repeats = 2;                    ///< launches that must agree, 2 or more
  bool capture = true;  ///< replay a captured graph where the device has graphs, else launch again
  KernelTable table{};  ///< as in SessionOptions
  std::function<void(const char* name)> begins = [](const char*) {};  ///< before the launches of each
};

/// What an invariant is, in a few words: "the same launch again" for "repeat". Its name, if it has none.
std::string invariant_words(std::string_view name);

/// Where a kernel failed: " during invariant repeat (the same launch again), after a first launch that was right".
std::string during_invariant(std::string_view name);

/// The names of all invariants, in the order in which they are checked.
std::vector<std::string> invariant_names();

/// Checks all invariants of a case that was launched once and gave `outputs`; for ops other than attention
/// only `strides`. A broken invariant fails the verdict as "invariant:<name>". Throws what Workload and
/// Launcher throw.
void check_invariants(const WorkItem& work, Device& device, Launcher& launcher, Workload& workload,
                      const HostOutputs& outputs, const InvariantOptions& options, Verdict& verdict);

}  // namespace attnbench
