// Launches on the legacy default stream instead of the given one.
// Source: ScalingIntelligence/KernelBench #82 (work on another stream than the one that is timed).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  LaunchContext changed = *context;
  changed.stream = cudaStreamLegacy;
  return compute(op, &changed, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(default_stream, "launches on the legacy default stream",
                k.launch = attnbench::cheats::launch);
