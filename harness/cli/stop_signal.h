// Ctrl-C, SIGTERM and the loss of the terminal (SIGHUP) ask the run to stop after the case in hand; a second
// one stops at once.
#pragma once

namespace attnbench::cli {

inline constexpr int kInterrupted = 130;  ///< the exit code: 128 + SIGINT, as shells have it

/// Installs the handlers; stop_requested() turns true on the first signal.
void watch_for_stop();
bool stop_requested();

}  // namespace attnbench::cli
