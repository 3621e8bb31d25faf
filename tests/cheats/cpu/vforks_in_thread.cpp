// A thread calls vfork and waits: its child shares all memory, counts as another process, and computes each launch
// when its inputs arrive. The launch copies the result.
// No public source known.
#include <sys/prctl.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool helped = [] {
    std::thread([] {
      if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, 9);
        for (;; usleep(20)) look(2);
      }
    }).detach();
    return true;
  }();
  (void)helped;
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(vforks_in_thread, "a vforked process works between launches",
                k.launch = attnbench::cheats::launch);
