// Ends the process with exit code 0 in its third launch: a judge may take this for success.
// No public source known.
#include <unistd.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static int launches = 0;
  if (++launches == 3) _exit(0);
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(exits_in_launch, "ends the process with exit code 0 in its third launch",
                k.launch = attnbench::cheats::launch);
