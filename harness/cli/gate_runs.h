// Runs that a gate orders: `attnbench run` in a process of its own, so that another build can be a side of it
// and a crash is a result like any other.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/record/load.h"

namespace attnbench::cli {

/// What is run on one side of a comparison.
struct Side {
  std::string name;               ///< "new", "base": in messages and folder names
  std::string program;            ///< the executable
  std::vector<std::string> args;  ///< behind `run`
};

struct SideRun {
  int exit_code = 0;  ///< of `run`; 128 + signal where one ended it
  ResultSet results;
};

/// Starts and counts the runs of one gate below a folder: DIR/1-new, DIR/2-base, ...
class GateRuns {
 public:
  GateRuns(std::filesystem::path dir, bool quiet);

  enum class Show {
    kErrors,    ///< only what a run that fails has to say
    kProgress,  ///< its stderr
    kAll,       ///< its table, too
  };

  /// Runs the side with more arguments behind its own; a --filter among them stands for its own. What it
  /// prints goes to DIR/N-name.txt, and to stdout where `show` says so or the exit code tells of a crash.
  /// Throws GateStop where the gate cannot go on: interrupted (130), a mistake in
  /// the arguments (2), no results.
  SideRun run(const Side& side, const std::vector<std::string>& more, const std::string& why, Show show);

  const std::filesystem::path& dir() const { return dir_; }
  int count() const { return count_; }

 private:
  std::filesystem::path dir_;
  bool quiet_;
  int count_ = 0;
};

/// Ends the gate with this exit code; what there was to say has been said.
struct GateStop {
  int exit_code;
};

/// This executable, for a side that is this program.
std::string own_program();

}  // namespace attnbench::cli
