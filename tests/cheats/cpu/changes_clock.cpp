// Replaces the program's clock: during a launch, time passes at a tenth of its speed.
// Source: gpu-mode/pygpubench, submission_got_patch among its exploits, and gpu-mode/reference-kernels #162
// (timer patch).
#include "tests/cheats/cheat.h"
#include "tests/cheats/slow_clock.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  replace_clocks();
  const int64_t begin = real_ns(CLOCK_MONOTONIC);
  const KernelStatus status = compute(op, context, message);
  hidden_ns += (real_ns(CLOCK_MONOTONIC) - begin) * 9 / 10;
  return status;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(changes_clock, "replaces the program's clock by one that is slow during launches",
                k.launch = attnbench::cheats::launch);
