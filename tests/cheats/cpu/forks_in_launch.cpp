// Forks in its third launch: the child computes nothing, returns too, and goes on as a second worker on the
// same pipes. It ends with its parent or after ten seconds.
// No public source known.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static int launches = 0;
  static bool child = false;
  if (++launches == 3 && fork() == 0) {
    child = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    alarm(10);
  }
  return child ? KernelStatus::kOk : compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(forks_in_launch, "forks; the child returns too and goes on as a second worker",
                k.launch = attnbench::cheats::launch);
