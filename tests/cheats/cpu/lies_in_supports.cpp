// supports() throws an exception from the second problem on.
// No public source known.
#include <stdexcept>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static int asked = 0;
  if (++asked > 1) throw std::runtime_error("supported, of course");
  return kRight.supports(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(lies_in_supports, "supports() throws an exception from the second problem on",
                k.supports = attnbench::cheats::supports);
