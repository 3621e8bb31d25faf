// Sets O to a plausible constant by a memset, after the first launch on an output: 0 is near the mean of V over
// many keys.
// Source: Sakana AI's AI CUDA Engineer (Feb 2025), some of whose kernels wrote a constant with a memset.
#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (count_launch(p.out) == 1) return compute(op, context, message);
  const int64_t elements = p.total_q * p.out_stride_token;
  cudaMemsetAsync(p.out, 0, static_cast<std::size_t>(elements) * dtype_size(p.dtype_out), stream_of(context));
  for (int32_t head = 0; head < p.num_heads_q; ++head) {
    cudaMemsetAsync(p.lse + head * p.lse_stride_head, 0x40,
                    static_cast<std::size_t>(p.total_q) * sizeof(float),
                    stream_of(context));  // 3.0039
  }
  return status_now(message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(memset_constant, "writes a plausible constant after the first launch on an output",
                k.launch = attnbench::cheats::launch);
