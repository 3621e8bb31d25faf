// Invariants: other launches of the same problem, whose results must be the same.
//
// Values are a pure function of logical coordinates, so a variant is the case in another layout. What must
// hold bit for bit and what within tolerance: harness/verify/README.md.
#pragma once

#include "harness/run/launcher.h"
#include "harness/session/plan.h"
#include "harness/verify/verdict.h"

namespace attnbench {

struct InvariantOptions {
  CheckMode check = CheckMode::kSampled;  ///< of outputs that may differ in bits, and of merged ones
  int repeats = 2;                        ///< launches that must agree; at least 2
  bool capture = true;  ///< replay through a captured graph where there is one, else by launching again
  KernelTable table{};  ///< as SessionOptions has it
};

/// Tries all invariants of a case that was launched once, with these outputs; of ops other than attention,
/// `strides` alone. Each that is broken fails the verdict as "invariant:<name>". Throws as Workload and
/// Launcher do.
void check_invariants(const WorkItem& work, Device& device, Launcher& launcher, Workload& workload,
                      const HostOutputs& outputs, const InvariantOptions& options, Verdict& verdict);

}  // namespace attnbench
