// Initialises itself for 50 ms in its very first launch, as libraries do.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::once_flag once;
  std::call_once(once, [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(slow_first_call, "initialises itself for 50 ms in its first launch",
                k.launch = attnbench::cheats::launch);
