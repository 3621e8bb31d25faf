// Shows the progress of a run. On a terminal it is one rewritten line, and a line for each case that fails;
// elsewhere plain lines.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "harness/record/record.h"

namespace attnbench::cli {

class Progress {
 public:
  /// Writes to stderr. `verbose` prints repro lines on a terminal too (elsewhere they are always printed).
  Progress(std::size_t total, bool quiet, bool verbose);
  void begin(const std::string& name, const std::string& repro);
  void end(const Record& record);
  void clear();

 private:
  /// A line now and then, where there is no terminal to show the time left all the time.
  void say_time_left();
  double seconds_left() const;

  std::size_t total_;
  std::size_t done_ = 0, timeouts_ = 0;
  bool terminal_;
  bool quiet_;
  bool verbose_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point said_ = start_;
};

}  // namespace attnbench::cli
