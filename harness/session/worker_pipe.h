// The worker's ends of its pipes. A kernel shares the process, so they are hard to find: above the descriptors
// that a scan tries, and closed in all that a kernel starts.
#pragma once

#include <optional>

#include "harness/session/messages.h"

namespace attnbench {

/// Moves the pipes from kWorkerIn and kWorkerOut to high numbers and closes them in children. To be called
/// before a plug-in is opened; a second call does nothing.
void take_worker_pipes();

/// Waits for the supervisor's next message; nullopt: there will be none.
std::optional<Message> next_request();

/// Sends an answer to the last request. Returns false if the supervisor has ended, or in a forked child.
bool tell(const Message& answer);

}  // namespace attnbench
