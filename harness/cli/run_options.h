// The options of `run`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/case_options.h"
#include "harness/cli/timing_flags.h"
#include "harness/session/session.h"

namespace attnbench::cli {

struct RunOptions {
  CaseOptions cases;
  TimingFlags timing;
  std::string device = "auto";
  std::vector<std::string> kernels;
  std::vector<std::string> check;
  std::vector<std::string> required;  ///< "acc=fp32"
  int repeats = 2;
  std::string out;
  std::string resume;  ///< folder of the run to resume
  std::string shard;   ///< "I/N"
  std::string dump;    ///< folder for the files of the one case
  std::vector<std::string> formats = {"json"};
  int threads = 0;
  int workers = 1;
  double timeout_s = 120;
  bool timeout_given = false;
  bool in_process = false;
  bool several_gpus = false;  ///< some case takes them, so kernels run where they are judged
  bool worker = false;        ///< this process is a worker
  bool no_time = false;
  bool counters = false;
  bool dry_run = false;
  bool quiet = false;
  bool verbose = false;
  bool fail_fast = false;
  bool last_failed = false;
  bool watch = false;
  std::string gate;  ///< folder of the gate that this run is a turn of, which speaks in its place; else empty

  bool is_turn() const { return !gate.empty(); }
  /// What the user gives to --resume to go on with the run in `dir`.
  std::string folder_to_resume(const std::filesystem::path& dir) const {
    return is_turn() ? gate : dir.string();
  }
};

/// The environment variable in which a gate tells its turns its own folder. It is no option, because a turn may run an
/// older build.
inline constexpr const char* kGateFolder = "ATTNBENCH_GATE_FOLDER";

struct Program;

/// Adds them to the command. They live as long as it does.
void add_run_options(CLI::App& command, const std::shared_ptr<RunOptions>& options, Program& program);

/// Replaces --clock auto by the clock of the run that goes on, or by what the machine allows. A gate has chosen for its
/// turns.
void choose_clock(RunOptions& options, const Program& program);

/// Throws UsageError where the device cannot be timed in this way.
void check_timing_on(DeviceKind kind, const RunOptions& options, const SessionOptions& session);

/// --watch: makes this command line without it, again after each change of a plug-in or a sweep file, what the program
/// does. Each time prints what differs from the last one.
void watch_instead(const std::shared_ptr<RunOptions>& options, Program& program);

}  // namespace attnbench::cli
