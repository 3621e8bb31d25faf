// Shows the progress of a run. On a terminal it is one rewritten line, and a line for each case that fails;
// elsewhere plain lines. Cases that will take long are announced.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>

#include "harness/cli/run_options.h"
#include "harness/results/record.h"
#include "harness/session/estimate.h"
#include "harness/session/plan.h"

namespace attnbench::cli {

class Progress {
 public:
  /// Writes to stderr. --verbose prints repro lines, too.
  Progress(std::size_t total, const Machine& machine, const SessionOptions& session,
           const RunOptions& options);
  void begin(const WorkItem& work, const std::string& repro);
  void end(const Record& record);
  void clear();

 private:
  /// A line now and then, where there is no terminal to show the time left all the time.
  void say_time_left();
  double seconds_left() const;
  /// Seconds that a case takes on a kernel about as fast as those of this program.
  double estimate(const Case& item) const;
  /// "expected to take about 2 min: " of a case that takes long, else nothing.
  std::string announcement(const WorkItem& work) const;
  void learn(const Record& record);

  std::size_t total_;
  std::size_t done_ = 0, timeouts_ = 0;
  const Machine machine_;
  const SessionOptions& session_;
  const RunOptions& options_;
  bool terminal_;
  /// How many times longer than estimated a kernel took, at least.
  std::map<std::string, double> slowness_;
  std::map<std::string, double> flop_per_s_;  ///< highest of each kernel's timed cases
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point said_ = start_;
};

}  // namespace attnbench::cli
