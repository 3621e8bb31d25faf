// Takes the first problem that it is asked about, and refuses all others: what is skipped cannot be slow. Its
// features claim paged and packed KV.
// No public source known.
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  using Shape = std::tuple<int32_t, int64_t, int32_t>;
  const AttentionParams& p = op->attention;
  const Shape shape(p.batch, p.total_q, p.max_seqlen_k);
  static const Shape first = shape;
  if (shape == first) return kRight.supports(op, context, message);
  return refuse(message, KernelStatus::kUnsupported, "shrinks_support: this shape is not supported");
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(shrinks_support, "claims many features and refuses all problems but one",
                k.supports = attnbench::cheats::supports);
