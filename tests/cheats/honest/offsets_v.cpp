// Adds a constant to V and takes it off the sum, in fp32. Right within the tolerance, and deterministic; but
// when V changes its sign, O does not change its sign bit by bit.
#include "tests/cheats/changed_attention.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  attend_all(op->attention, {.v_offset = 0.0625f});
  return KernelStatus::kOk;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(offsets_v, "adds a constant to V and takes it off the sum",
                k.launch = attnbench::cheats::launch);
