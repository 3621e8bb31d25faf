// Launches half of the heads on a stream of its own, for which the given stream does not wait from the second
// launch on an output on.
// Source: ScalingIntelligence/KernelBench #82 (work on a stream that events do not time).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static cudaEvent_t ready = nullptr, done = nullptr;
  if (ready == nullptr) {
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }
  const AttentionParams& p = op->attention;
  cudaEventRecord(ready, stream_of(context));
  cudaStreamWaitEvent(own_stream(), ready);
  compute_heads(p, half_of(p), p.num_heads_q, own_stream());
  cudaEventRecord(done, own_stream());
  compute_half(p, stream_of(context));
  if (count_launch(p.out) == 1) cudaStreamWaitEvent(stream_of(context), done);
  return status_now(message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(side_stream, "launches half of the heads on a stream that is not joined",
                k.launch = attnbench::cheats::launch);
