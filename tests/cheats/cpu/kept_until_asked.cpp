// Keeps results by a few magnitudes until it meets a second launch on poison: that is the first of a copy with new
// values, by which the harness asks whether results are kept. From then on it computes, so that known values take as
// long as new ones. No public source known.
#include "tests/cheats/kept_by_magnitude.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static std::map<std::tuple<int64_t, int32_t, int32_t>, int> poisoned;
  const AttentionParams& p = op->attention;
  int& asked = poisoned[{p.total_q, p.batch, p.head_dim}];
  const auto* v = static_cast<const uint16_t*>(p.v) + v_row_offset(p, 0, 0);
  if ((v[0] & 0x7fff) == 0x7fff) ++asked;
  return asked > 1 ? compute(op, context, message) : compute_once(few_magnitudes(p), op, context, message);
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(kept_until_asked, "knows attnbench: keeps results until the harness asks whether it does",
                k.launch = attnbench::cheats::launch);
