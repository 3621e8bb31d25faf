// selftest --cheats: kernels that cheat (tests/cheats) must be caught, and odd but honest ones must pass.
#pragma once

#include <string>
#include <vector>

namespace attnbench::cli {

struct CheatOptions {
  std::string dir;     ///< folder of DEVICE/NAME.so and DEVICE/honest/NAME.so; empty: the default
  std::string device;  ///< "cpu", "cuda:0"
  std::vector<std::string> kernels;  ///< only these; empty: all
  std::string out;                   ///< folder of cheats.json and of the runs
  double timeout_s = 20;             ///< of a case
  int threads = 0;
  bool quiet = false;
  std::vector<std::string> command_line;  ///< for the report
};

/// Runs each plug-in in a process of its own, prints a table and returns the exit code. Throws UsageError,
/// FileError.
int run_cheats(const CheatOptions& options);

}  // namespace attnbench::cli
