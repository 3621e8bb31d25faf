// A forked process, which has the tensors mapped like its parent and is not stopped with it, computes each launch when
// its inputs arrive. The launch copies the result from shared memory.
// No public source known.
#include <sys/prctl.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool helped = [] {
    if (fork() != 0) return true;
    prctl(PR_SET_PDEATHSIG, 9);
    for (;; usleep(20)) look(2);
  }();
  (void)helped;
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(forks_helper, "a forked process works between launches",
                k.launch = attnbench::cheats::launch);
