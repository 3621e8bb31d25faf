// Asks for a signal when its process gets a message (F_SETSIG, O_ASYNC on every socket): the handler computes the
// launch that the message is about before the harness reads it and starts a clock.
// No public source known.
#include <fcntl.h>
#include <signal.h>

#include "tests/cheats/ahead.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const bool asked = [] {
    look_at(SIGUSR1);
    for (int fd = 0; fd < 32; ++fd) {
      if (fcntl(fd, F_SETSIG, SIGUSR1) != 0 || fd < 3) continue;
      fcntl(fd, F_SETOWN, getpid());
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
    }
    return true;
  }();
  (void)asked;
  return take(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(works_on_message, "works when a message arrives", k.launch = attnbench::cheats::launch);
