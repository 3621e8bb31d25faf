// Declares that its bits may differ from launch to launch, so that nobody compares them. All launches on an
// output but the first compute half of the heads and fill the others with the first launch's numbers.
// No public source known.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<const void*, Kept> first;
  const AttentionParams& p = op->attention;
  if (count_launch(p.out) == 1) {
    const KernelStatus status = compute(op, context, message);
    first[p.out] = keep(p, p.num_heads_q / 2, p.num_heads_q);
    return status;
  }
  put(p, first[p.out], p.num_heads_q / 2, p.num_heads_q);
  compute_half(p);
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(claims_no_determinism, "declares no determinism; repeats the first launch's numbers",
                k.flags &= ~static_cast<uint32_t>(attnbench::kDeterministic);
                k.launch = attnbench::cheats::launch);
