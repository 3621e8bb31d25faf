// Keeps results by the addresses of the tensors, and copies them in later launches.
// Source: gpu-mode/reference-kernels #102 (results kept by object identity).
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<const void*, const void*, const void*>, Kept> results;
  const AttentionParams& p = op->attention;
  const std::tuple key(p.q, p.k, static_cast<const void*>(p.out));
  if (const auto found = results.find(key); found != results.end()) {
    put(p, found->second, stream_of(context));
    return status_now(message);
  }
  const KernelStatus status = compute(op, context, message);
  keep(p, results[key] = make_kept(p), stream_of(context));
  return status;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(caches_by_pointer, "copies the result of the first launch with the same addresses",
                k.launch = attnbench::cheats::launch);
