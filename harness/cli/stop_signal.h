// Ctrl-C, SIGTERM and the loss of the terminal (SIGHUP) ask the run to stop after the current case. A second
// signal stops at once.
#pragma once

#include <optional>

namespace attnbench::cli {

/// Installs the handlers. stop_requested() returns true after the first signal. `most_s`: the seconds after
/// which a case is given up; nullopt if none is.
void watch_for_stop(std::optional<double> most_s = std::nullopt);
bool stop_requested();

}  // namespace attnbench::cli
