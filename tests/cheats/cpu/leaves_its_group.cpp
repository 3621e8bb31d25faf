// As forks_helper, but the forked process tries not to be stopped with its parent: it leaves the session by a system call
// of 32-bit programs, and has a timer that continues it.
// No public source known.
#include <sys/prctl.h>
#include <time.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static void leave() {
  setsid();
#ifdef __x86_64__
  long number = 66;  // setsid
  asm volatile("int $0x80" : "+a"(number) : : "r8", "r9", "r10", "r11", "memory");
#endif
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGCONT;
  timer_t timer{};
  const itimerspec often{{0, 50'000}, {0, 50'000}};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &often, nullptr);
}

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool helped = [] {
    if (fork() != 0) return true;
    prctl(PR_SET_PDEATHSIG, 9);
    leave();
    for (;; usleep(20)) look(2);
  }();
  (void)helped;
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(leaves_its_group, "a forked process works where it is not stopped",
                k.launch = attnbench::cheats::launch);
