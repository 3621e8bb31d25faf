// Launches half of the heads; a thread launches the others 50 us later, on a stream of its own.
// Source: ScalingIntelligence/KernelBench #82 (work that events do not time), by a thread.
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams p = op->attention;
  if (count_launch(p.out) == 1) return compute(op, context, message);
  compute_half(p, stream_of(context));
  const int device = context->device_ordinal;
  std::thread([p, device] {
    cudaSetDevice(device);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    compute_heads(p, half_of(p), p.num_heads_q, own_stream());
  }).detach();
  return status_now(message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(thread_launches_later,
                "leaves half of the heads to a thread that launches them after launch returned",
                k.launch = attnbench::cheats::launch);
