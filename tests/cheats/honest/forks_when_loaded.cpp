// An initialiser forks a process and waits for it, as libraries do that try out an instruction set or run a tool.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static const bool tried = [] {
  const pid_t child = fork();
  if (child == 0) _exit(3);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3;
}();

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (!tried) return refuse(message, KernelStatus::kDeviceError, "forks_when_loaded: no child");
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(forks_when_loaded, "an initialiser forks and waits", k.launch = attnbench::cheats::launch);
