// Returns when half of the heads are done, except in the first launch on an output: a detached thread does the
// others.
// Source: ScalingIntelligence/KernelBench #82 (work that the clock does not wait for), on threads.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const AttentionParams p = op->attention;
  std::thread others([p] { compute_heads(p, p.num_heads_q / 2, p.num_heads_q); });
  compute_half(p);
  if (count_launch(p.out) == 1) {
    others.join();
  } else {
    others.detach();
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(finishes_later, "leaves half of the heads to a thread that goes on after launch returned",
                k.launch = attnbench::cheats::launch);
