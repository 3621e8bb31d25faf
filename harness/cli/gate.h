// The gate: runs, compares, runs again what is undecided, and says it in an exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/compare_flags.h"
#include "harness/cli/gate_runs.h"

namespace attnbench::cli {

struct GateOptions {
  CaseOptions cases;
  std::vector<std::string> forwarded;  ///< options of `run`, as given
  std::vector<std::string> kernels;
  std::vector<std::string> plugins;  ///< files
  std::string baseline, against, against_kernel, against_plugin, out, resume;
  std::vector<std::string> formats;
  CompareFlags compare;
  std::optional<int> reruns;  ///< default: as GatePolicy
  std::optional<double> max_time_s;
  int pairs = 5;
  int runs = 16;         ///< that a baseline is made of
  double whole_s = 120;  ///< a run of at most so many seconds is repeated whole
  bool update_baseline = false;
  bool calibrate = false;
  bool no_time = false;
  bool quiet = false;
};

/// The arguments of `run` that choose the cases, the device and how it is timed; `kernels` replaces --kernel.
std::vector<std::string> run_arguments(const GateOptions& options, const std::vector<std::string>& kernels);

/// Where noise is read from and --calibrate writes it: --noise, else beside the baseline; empty where neither
/// is given.
std::string noise_path(const GateOptions& options);

/// What decides which runs this gate makes, beside the arguments of the runs themselves.
GateSettings gate_settings(const GateOptions& options);

/// Runs the side 2 * pairs times, stores the noise between the runs, prints it. Returns the exit code and
/// leaves the last run in `last`.
int calibrate(const GateOptions& options, const Side& side, GateRuns& runs, SideRun& last);

/// The pooled results of these runs (numbers of `side`'s folders) become the baseline, unless run_code says
/// that they are wrong or empty; then it is returned.
int update_baseline(const GateOptions& options, const GateRuns& runs, const Side& side,
                    const std::vector<int>& numbers, int run_code);

/// Runs, compares, runs again what is undecided. Returns the exit code. Throws UsageError, GateStop.
int gate(GateOptions options, const Program& program);

}  // namespace attnbench::cli
