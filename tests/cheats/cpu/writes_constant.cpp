// Writes a plausible constant: 0 is near the mean of V over many keys.
// Source: Sakana AI's AI CUDA Engineer (Feb 2025), some of whose kernels wrote a constant with a memset.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (count_launch(p.out) == 1) return compute(op, context, message);
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    std::memset(out_row(p, b, i, head), 0, row_bytes(p));
    lse_row(p, b, i, head) = std::log(static_cast<float>(seq_range(p, b).k_len));
  });
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(writes_constant, "writes a plausible constant after the first launch on an output",
                k.launch = attnbench::cheats::launch);
