// `attnbench run` as a child process, for commands that judge runs from outside.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace attnbench::cli {

constexpr int kNotStarted = 127;  ///< exit code of a program that cannot be started, as shells have it

struct ChildProgram {
  std::vector<std::string> args;
  std::filesystem::path log;
  bool silent;
};

/// From here to restore_signals, SIGINT, SIGTERM and SIGHUP go to the children in hand. A second one between
/// children ends this process at once.
void catch_signals();
void restore_signals();
/// Whether such a signal has come.
bool child_stopped();

/// Runs the program and returns its exit code; 128 + signal if a signal ended it. `log` gets its stdout, and
/// its stderr too if `silent`; if it is empty, the program has those of this one. Throws UsageError.
int run_program(const std::vector<std::string>& args, const std::filesystem::path& log, bool silent);

/// Runs two programs `attnbench run` at the same time, of which one works while the workers of the other are stopped, a
/// few hundredths of a second each: so whatever else the machine does disturbs both alike. Their CPU times do not show it.
std::array<int, 2> run_in_slices(const std::array<ChildProgram, 2>& programs);

}  // namespace attnbench::cli
