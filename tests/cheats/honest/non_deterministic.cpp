// Sums the keys of a row from a place drawn anew for each launch, so that the last bits differ. It declares no
// determinism, and its results are right to rounding.
#include <random>

#include "tests/cheats/changed_attention.h"

namespace attnbench::cheats {
namespace {

KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  static std::minstd_rand random(1);
  attend_all(op->attention, {.first = static_cast<uint32_t>(random() >> 8)});
  return KernelStatus::kOk;
}

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(non_deterministic, "sums in another order in each launch, and says so",
                k.flags &= ~static_cast<uint32_t>(attnbench::kDeterministic);
                k.launch = attnbench::cheats::launch);
