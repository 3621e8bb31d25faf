// Keeps results by magnitudes, and from the second plan of a shape on wants a workspace that no machine has: with one
// copy of the tensors the harness would leave out the launches on new values that show it. No public source known.
#include "tests/cheats/kept_by_magnitude.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return compute_once(few_magnitudes(op->attention), op, context, message);
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext*) {
  static std::map<std::tuple<int64_t, int32_t, int32_t>, int> asked;
  const AttentionParams& p = op->attention;
  return ++asked[{p.total_q, p.batch, p.head_dim}] == 1 ? 0 : std::size_t{1} << 50;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(limits_memory, "wants a workspace that cannot be had when a second copy is made",
                k.workspace_bytes = attnbench::cheats::workspace_bytes;
                k.launch = attnbench::cheats::launch);
