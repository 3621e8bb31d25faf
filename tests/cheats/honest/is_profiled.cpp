// Has a sampling profiler in it: SIGPROF every millisecond of its CPU time, whose handler counts, as gperftools does.
#include <signal.h>
#include <sys/time.h>

#include <atomic>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static std::atomic<int> samples{0};

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool started = [] {
    struct sigaction action = {};
    action.sa_handler = [](int) { ++samples; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &action, nullptr);
    const itimerval every = {{0, 1000}, {0, 1000}};
    return setitimer(ITIMER_PROF, &every, nullptr) == 0;
  }();
  (void)started;
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(is_profiled, "a sampling profiler runs in it", k.launch = attnbench::cheats::launch);
