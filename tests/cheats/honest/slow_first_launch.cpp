// Takes 50 ms longer in the first launch after each plan, as libraries do that load code or build tables late.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static bool planned = false;

static KernelStatus plan(const OpParams*, const LaunchContext*, KernelMessage*) {
  planned = true;
  return KernelStatus::kOk;
}

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (planned) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  planned = false;
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(slow_first_launch, "takes 50 ms longer in the first launch after each plan",
                k.plan = attnbench::cheats::plan;
                k.launch = attnbench::cheats::launch);
