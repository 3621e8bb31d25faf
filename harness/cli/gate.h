// The gate: runs, compares, runs undecided cases again, and returns the verdict as an exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/compare_flags.h"
#include "harness/cli/gate_runs.h"
#include "harness/compare/gate_policy.h"

namespace attnbench::cli {

struct GateOptions {
  CaseOptions cases;
  std::vector<std::string> forwarded;  ///< options for `run`, as given
  std::vector<std::string> kernels;
  std::vector<std::string> plugins;  ///< files
  std::string python;                ///< --python
  std::string baseline, against, against_kernel, against_plugin, out, resume;
  std::vector<std::string> required;   ///< --require
  std::optional<double> min_coverage;  ///< percent of the cases that each kernel of the new side must run
  std::vector<std::string> formats;
  CompareFlags compare;
  std::optional<int> reruns;  ///< default: as GatePolicy
  std::optional<double> max_time_s;
  int pairs = 5;
  int runs = 16;         ///< number of runs for a baseline
  double whole_s = 120;  ///< reruns take all cases if the first round took at most this many seconds
  bool update_baseline = false;
  bool calibrate = false;
  bool no_time = false;
  bool quiet = false;
  bool slices = false;  ///< both sides run at the same time, by CPU time
};

/// Whether the file of --baseline is there.
bool has_baseline(const GateOptions& options);

/// The value of an option that is passed on to `run`.
std::string forwarded(const GateOptions& options, const std::string& option, const std::string& otherwise);

/// Chooses the clock of all turns: that of an interrupted gate, that of the baseline, or what the machine allows. Where the
/// user leaves it open and both sides run, one thread is enough: its CPU time tells more than the wall time of several
/// that wait for each other.
void choose_clock(GateOptions& options, const Program& program);

/// A gate of plug-ins against a baseline judges their kernels and those of the baseline, not all built-in ones: sets
/// `kernels`, unless --kernel has named some.
void choose_kernels_of_plugins(GateOptions& options, const Program& program);

/// Makes the new side run the kernels of --plugin. Returns the options of the other side, which runs those of
/// --against-plugin.
GateOptions with_other_plugin(GateOptions& options, const Program& program);

/// The arguments of `run` that choose the cases, the device and the timing; `kernels` replaces --kernel.
std::vector<std::string> run_arguments(const GateOptions& options, const std::vector<std::string>& kernels);

/// The file for noise, which --calibrate writes and other gates read: --noise, else beside the baseline.
/// Empty if neither is given.
std::string noise_path(const GateOptions& options);

/// What lies ahead after a first turn of `turn_s`; rounds are not set.
Ahead ahead_of_turns(const GateOptions& options, const GateRuns& runs, double turn_s);

/// What decides which runs this gate makes, beside the arguments of the runs themselves.
GateSettings gate_settings(const GateOptions& options);

/// Runs the side 2 * pairs times, then stores and prints the noise between the runs. Returns the exit code
/// and leaves the last run in `last`.
int calibrate(const GateOptions& options, const Side& side, GateRuns& runs, SideRun& last);

/// Makes the pooled results of these runs (numbers of `side`'s folders) the baseline. If run_code says that
/// they are wrong or empty, returns run_code and writes nothing.
int update_baseline(const GateOptions& options, const GateRuns& runs, const Side& side,
                    const std::vector<int>& numbers, int run_code);

/// Runs, compares, and runs undecided cases again. Returns the exit code. Throws UsageError, GateStop.
int gate(GateOptions options, const Program& program);

}  // namespace attnbench::cli
