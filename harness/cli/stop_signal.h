// Ctrl-C, SIGTERM and the loss of the terminal (SIGHUP) ask the run to stop after the current case. A second
// signal stops at once.
#pragma once

namespace attnbench::cli {

/// Installs the handlers. stop_requested() returns true after the first signal.
void watch_for_stop();
bool stop_requested();

}  // namespace attnbench::cli
