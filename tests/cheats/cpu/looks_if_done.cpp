// Computes half of the heads if the output holds a number already: an earlier launch has left the right result
// there.
// Source: ScalingIntelligence/KernelBench #82 (memory that still holds the right output).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  const int64_t last = out_offset(p, p.cu_seqlens_q[p.batch] - 1, p.num_heads_q - 1) + p.head_dim_v - 1;
  if (std::isnan(load_float(p.dtype_out, p.out, last))) return compute(op, context, message);
  compute_half(p);
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(looks_if_done, "computes half of the heads if the output holds a number already",
                k.launch = attnbench::cheats::launch);
