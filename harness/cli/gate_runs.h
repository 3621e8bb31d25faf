// The runs of a gate. Each is `attnbench run` in a process of its own, so that another build can be a side
// and a crash is one of its results.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/child_program.h"
#include "harness/cli/gate_journal.h"
#include "harness/results/load.h"

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

/// Starts and counts the runs of one gate below a folder: DIR/1-new, DIR/2-base, ... While it lives, SIGINT,
/// SIGTERM and SIGHUP go to the run in hand, and end the gate with it; a second one between runs ends it at
/// once.
class GateRuns {
 public:
  /// With `resume`, what an interrupted gate with the same settings did in the folder is taken up. Throws
  /// UsageError, FileError.
  GateRuns(std::filesystem::path dir, const GateSettings& settings, bool resume, bool quiet);
  ~GateRuns();
  GateRuns(const GateRuns&) = delete;
  GateRuns& operator=(const GateRuns&) = delete;

  enum class Show {
    kErrors,    ///< only the output of a run that fails
    kProgress,  ///< its stderr
    kAll,       ///< its table too
  };

  /// Runs the side with more arguments behind its own; a --filter among them stands for its own. What it
  /// prints goes to DIR/N-name.txt, and below a heading to stdout where `show` says so or the exit code tells
  /// of a crash (once for each side; if quiet, only if the run left no results).
  /// A run that had ended before the gate was resumed is not repeated, but of the first whole one of each
  /// side `run --resume` checks that it is what would run now. One that was interrupted goes on.
  /// Throws GateStop where the gate cannot go on: interrupted (130), a mistake in
  /// the arguments (2), no results.
  SideRun run(const Side& side, const std::vector<std::string>& more, const std::string& why, Show show);
  /// As run, of both sides at the same time (run_in_slices).
  std::pair<SideRun, SideRun> run_both(const std::array<const Side*, 2>& sides,
                                       const std::vector<std::string>& more, const std::string& why,
                                       const std::array<Show, 2>& shows);
  /// As run, before the first turn and no turn itself: in DIR/0-name, for its context only.
  SideRun probe(const Side& side, const std::vector<std::string>& more, const std::string& why);

  const std::filesystem::path& dir() const { return dir_; }
  int count() const { return count_; }
  /// Adds turns that are to come, so that messages can say "turn 3 of 4".
  void plan(int turns) { planned_ += turns; }
  int planned() const { return planned_; }
  /// Turns that have ended, those before the gate was resumed included.
  int finished() const;
  /// The run in hand: "turn 3 of 4".
  std::string turn_text() const;
  /// True where the next run ended before the gate was resumed.
  bool next_has_ended() const;
  /// Wall time so far, that of the runs before the gate was resumed included.
  double seconds() const;

 private:
  std::filesystem::path folder_of(const Side& side) const;
  /// The arguments of the program for this run.
  std::vector<std::string> arguments(const Side& side, const std::vector<std::string>& more,
                                     bool resume) const;
  SideRun run_numbered(const Side& side, const std::vector<std::string>& more, const std::string& why,
                       Show show);
  /// The run in hand, if it ended before the gate was resumed.
  std::optional<SideRun> ended_earlier(const Side& side, const std::vector<std::string>& more,
                                       const std::string& why, Show show);
  /// Notes that it begins. Returns the arguments of its program.
  std::vector<std::string> begin(const Side& side, const std::vector<std::string>& more,
                                 const std::string& why);
  SideRun end(const Side& side, int code, double took_s);
  ChildProgram child_of(const Side& side, const std::vector<std::string>& args, Show show) const;
  int start(const Side& side, const std::vector<std::string>& args, const std::string& why, Show show);
  /// Shows what a run has printed. Returns its exit code.
  int shown(const Side& side, const std::vector<std::string>& args, const std::string& why, Show show,
            int code);
  ResultSet results_of(const Side& side, int exit_code) const;

  std::filesystem::path dir_;
  bool quiet_;
  GateJournal journal_;
  int count_ = 0, planned_ = 0;
  int number_ = 0;                     ///< of the run in hand; 0: the probe
  double earlier_s_ = 0;               ///< of runs before the gate was resumed
  std::set<std::string> checked_;      ///< sides
  std::set<std::string> told_broken_;  ///< sides whose output was shown because a run of theirs crashed
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

/// Ends the gate with this exit code. The message has been printed already.
struct GateStop {
  int exit_code;
};

}  // namespace attnbench::cli
