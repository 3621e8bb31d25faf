// The worker's side: a process that runs the cases it is given on one device, until its input ends.
#pragma once

#include <functional>

#include "harness/session/messages.h"
#include "harness/session/session.h"

namespace attnbench {

/// Serves the supervisor on kWorkerIn and kWorkerOut (messages.h); returns the exit code of the process.
/// What a kernel prints goes to stdout and stderr, which the supervisor reads.
int serve_cases(const SessionOptions& options);

/// The loop of any worker: hands each message that arrives on kWorkerIn to `handle`; false ends the process.
int serve_messages(const std::function<bool(const Message&)>& handle);

}  // namespace attnbench
