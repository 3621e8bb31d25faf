// Does not return from its third launch.
// No public source known.
#include <unistd.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static int launches = 0;
  while (launches == 2) pause();
  ++launches;
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(never_returns, "does not return from its third launch", k.launch = attnbench::cheats::launch);
