// Returns when the gradients of half of the KV heads are done, except in the first launch on a gradient: a detached
// thread does the others.
// Source: ScalingIntelligence/KernelBench #82 (work that the clock does not wait for), on threads.
#include "tests/cheats/cheat_gradients.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const Grads p = op->attention_backward;
  std::thread others([p] { compute_heads(p, p.num_heads_kv / 2, p.num_heads_kv); });
  compute_heads(p, 0, p.num_heads_kv / 2);
  if (count_launch(p.dq) == 1) {
    others.join();
  } else {
    others.detach();
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(grads_finished_later,
                "leaves half of the heads to a thread that goes on after launch returned",
                k.launch = attnbench::cheats::launch);
