// A forked process becomes the tracer of the process of the kernel and withholds SIGSTOP from it, so that a thread can
// compute each launch while its tensors are filled.
// No public source known.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {
namespace {

void trace(pid_t pid) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACECLONE) != 0) _exit(0);
  for (int status;;) {
    const pid_t tid = waitpid(-1, &status, __WALL);
    if (tid < 0) _exit(0);
    if (!WIFSTOPPED(status)) continue;
    const int signal = status >> 16 != 0 || WSTOPSIG(status) == SIGSTOP || WSTOPSIG(status) == SIGTRAP
                           ? 0
                           : WSTOPSIG(status);
    ptrace(PTRACE_CONT, tid, 0, signal);
  }
}

}  // namespace

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool traced = [] {
    const pid_t pid = getpid();
    if (fork() == 0) trace(pid);
    usleep(2000);
    std::thread([] {
      for (;; usleep(20)) look(2);
    }).detach();
    return true;
  }();
  (void)traced;
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(traces_itself, "withholds SIGSTOP from itself", k.launch = attnbench::cheats::launch);
