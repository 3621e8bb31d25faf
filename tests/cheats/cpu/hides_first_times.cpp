// Keeps results by a few magnitudes, and stops the clock whenever it has to compute one. Launches with new values thus
// seem to take as long as the others. No public source known.
#include "tests/cheats/kept_by_magnitude.h"
#include "tests/cheats/slow_clock.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  replace_clocks();
  const int64_t begin = real_ns(CLOCK_MONOTONIC);
  const KernelStatus status = compute_once(few_magnitudes(op->attention), op, context, message);
  constexpr int64_t kKeptNs = 10'000;
  hidden_ns += std::max<int64_t>(0, real_ns(CLOCK_MONOTONIC) - begin - kKeptNs);
  return status;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(hides_first_times, "keeps results, and stops the clock when it computes one",
                k.launch = attnbench::cheats::launch);
