// The worker's side: a process that runs the cases that it receives on one device, until its input ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/session/messages.h"
#include "harness/session/session.h"

namespace attnbench {

/// Serves the supervisor on the worker's pipes (messages.h) and returns the exit code of the process.
/// Output of a kernel goes to stdout and stderr, which the supervisor reads.
/// `runner`: command line of the process in which kernels run; empty: they run in this one.
int serve_cases(const SessionOptions& options, const std::vector<std::string>& runner);

/// The loop of any worker: passes each message of the supervisor to `handle`. The process ends if `handle`
/// returns false.
int serve_messages(const std::function<bool(const Message&)>& handle);

}  // namespace attnbench
