// The worker's side: a process that runs the cases it is given on one device, until its input ends.
#pragma once

#include "harness/session/session.h"

namespace attnbench {

/// Serves the supervisor on kWorkerIn and kWorkerOut (messages.h); returns the exit code of the process.
/// What a kernel prints goes to stdout and stderr, which the supervisor reads.
int serve_cases(KernelTable table, const SessionOptions& options);

}  // namespace attnbench
