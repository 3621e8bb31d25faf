// A timer interrupts the thread that launches, every 50 us: the handler computes launches whose inputs have arrived,
// in the thread that the harness knows, in between. The launch blocks the signal, and copies the result.
// No public source known.
#include <signal.h>
#include <sys/time.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {
static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  sigset_t alarm, old;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm, &old);
  static const bool started = [] {
    look_at(SIGALRM);
    const itimerval every = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &every, nullptr);
    return true;
  }();
  (void)started;
  const KernelStatus status = take(op, context, message);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return status;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(works_on_timer, "works in a handler of a timer", k.launch = attnbench::cheats::launch);
