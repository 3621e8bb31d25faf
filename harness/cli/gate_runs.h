// The runs of a gate. Each is `attnbench run` in a process of its own, so that another build can be a side
// and a crash is one of its results.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/record/load.h"

namespace attnbench::cli {

/// What runs on one side of a comparison.
struct Side {
  std::string name;               ///< "new", "base": for messages and folder names
  std::string program;            ///< the executable
  std::vector<std::string> args;  ///< arguments after `run`
};

struct SideRun {
  int exit_code = 0;  ///< exit code of `run`; 128 + signal if a signal ended it
  ResultSet results;
};

/// Starts the runs of one gate and numbers them. Their folders are DIR/1-new, DIR/2-base, ...
class GateRuns {
 public:
  GateRuns(std::filesystem::path dir, bool quiet);

  enum class Show {
    kErrors,    ///< only the output of a run that fails
    kProgress,  ///< its stderr
    kAll,       ///< its table too
  };

  /// Runs the side with `more` arguments after its own; a --filter in `more` replaces its own. The output
  /// goes to DIR/N-name.txt, and also to stdout if `show` asks for it or the exit code means a crash. Throws
  /// GateStop if the gate cannot continue: interrupted (130), wrong arguments (2), no results (5).
  SideRun run(const Side& side, const std::vector<std::string>& more, const std::string& why, Show show);

  const std::filesystem::path& dir() const { return dir_; }
  int count() const { return count_; }

 private:
  std::filesystem::path dir_;
  bool quiet_;
  int count_ = 0;
};

/// Ends the gate with this exit code. The message has been printed already.
struct GateStop {
  int exit_code;
};

/// The path of this executable, for a side that runs this program.
std::string own_program();

}  // namespace attnbench::cli
