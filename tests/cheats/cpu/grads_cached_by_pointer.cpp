// Keeps gradients by the addresses of the tensors and their lengths, and copies them in later launches.
// Source: gpu-mode/reference-kernels #102 (results kept by object identity).
#include "tests/cheats/cheat_gradients.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<const void*, const void*, int64_t>, Kept> results;
  const Grads& p = op->attention_backward;
  const std::tuple key(p.d_out, static_cast<const void*>(p.dq), p.total_q);
  if (const auto found = results.find(key); found != results.end()) {
    put(p, found->second);
    return KernelStatus::kOk;
  }
  const KernelStatus status = compute(op, context, message);
  results[key] = keep(p);
  return status;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(grads_cached_by_pointer, "copies the gradients of the first launch with the same addresses",
                k.launch = attnbench::cheats::launch);
