// Computes half of the heads in every second launch on an output, from the third on.
// Source: gpu-mode/reference-kernels #104 (one call in several does the work).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const int n = count_launch(op->attention.out);
  if (n < 3 || n % 2 == 0) return compute(op, context, message);
  compute_half(op->attention);
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(odd_launches, "computes half of the heads in every second launch",
                k.launch = attnbench::cheats::launch);
