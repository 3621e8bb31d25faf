// Results for a person at a terminal.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>

#include "harness/record/record.h"

namespace attnbench {

struct ConsoleOptions {
  std::size_t width = 0;  ///< columns of the terminal; 0: as wide as it needs
  bool colour = false;
  double elapsed_s = 0;             ///< wall time of the run, for the summary line
  bool ceilings_disturbed = false;  ///< measured on a busy machine: %SOL and bound get a mark
};

/// The table, what failed with reason and repro, and last the summary line.
void print_console(std::ostream& out, std::span<const Record> records, const ConsoleOptions& options);

/// "[ 12/136] pass  <name>  12.34 us": one line for a record that has just finished. planned 0: no total.
std::string progress_line(const Record& r, int64_t done, int64_t planned, const ConsoleOptions& options);

/// Columns of the terminal on this file descriptor; 0 where it is none.
std::size_t terminal_width(int fd);

}  // namespace attnbench
