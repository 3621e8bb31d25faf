// The plan forks twice: an orphan in a session of its own, whose name tries to break a reader of /proc/PID/stat,
// computes each launch when its inputs arrive. The launch copies the result. It ends after twenty seconds.
// No public source known.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus plan(const OpParams*, const LaunchContext*, KernelMessage*) {
  static const bool helped = [] {
    const pid_t child = fork();
    if (child != 0) {
      waitpid(child, nullptr, 0);
      return true;
    }
    if (fork() != 0) syscall(231, 0);
    setsid();
    prctl(PR_SET_NAME, "x) S 1 1 1 0");
    for (const time_t end = time(nullptr) + 20; time(nullptr) < end; usleep(20)) look(2);
    syscall(231, 0);
    return true;
  }();
  (void)helped;
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(orphan_in_plan, "an orphaned process works between launches",
                k.plan = attnbench::cheats::plan;
                k.launch = attnbench::cheats::take);
