// Replaces the program's clock: during a launch, time passes at a tenth of its speed.
// Source: gpu-mode/pygpubench, submission_got_patch among its exploits, and gpu-mode/reference-kernels #162
// (timer patch).
#include <sys/syscall.h>

#include <atomic>

#include "tests/cheats/cheat.h"
#include "tests/cheats/got.h"

namespace attnbench::cheats {
namespace {

std::atomic<int64_t> hidden_ns = 0;

int64_t real_ns(clockid_t clock) {
  timespec t{};
  syscall(SYS_clock_gettime, clock, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

int slow_clock_gettime(clockid_t clock, timespec* t) {
  const int64_t ns = real_ns(clock) - hidden_ns;
  *t = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  return 0;
}

int64_t slow_steady_now() { return real_ns(CLOCK_MONOTONIC) - hidden_ns; }

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::once_flag once;
  std::call_once(once, [] {
    replace_function("clock_gettime", reinterpret_cast<void*>(slow_clock_gettime));
    replace_function("_ZNSt6chrono3_V212steady_clock3nowEv", reinterpret_cast<void*>(slow_steady_now));
  });
  const int64_t begin = real_ns(CLOCK_MONOTONIC);
  const KernelStatus status = compute(op, context, message);
  hidden_ns += (real_ns(CLOCK_MONOTONIC) - begin) * 9 / 10;
  return status;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(changes_clock, "replaces the program's clock by one that is slow during launches",
                k.launch = attnbench::cheats::launch);
