// Computes half of the heads after four launches on an output: by then a judge has checked the result.
// Source: gpu-mode/reference-kernels #104 (work is done in some calls and skipped in the timed others).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (count_launch(op->attention.out) <= 4) return compute(op, context, message);
  compute_half(op->attention, stream_of(context));
  return status_now(message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(counts_launches, "computes half of the heads after four launches on an output",
                k.launch = attnbench::cheats::launch);
