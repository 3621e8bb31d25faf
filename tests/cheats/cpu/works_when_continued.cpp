// Works in a handler of SIGCONT: a process that was stopped while its tensors were filled gets this signal before the
// next launch. The launch copies the result.
// No public source known.
#include <signal.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  look_at(SIGCONT);
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(works_when_continued, "works in a handler of SIGCONT", k.launch = attnbench::cheats::launch);
