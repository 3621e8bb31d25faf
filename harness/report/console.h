// Results for people at a terminal.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>

#include "harness/report/table.h"
#include "harness/results/record.h"

namespace attnbench {

struct ConsoleOptions : TableOptions {
  double elapsed_s = 0;             ///< wall time of the run in seconds, for the summary line
  bool ceilings_disturbed = false;  ///< measured on a busy machine: %SOL and bound get a mark
};

/// Prints the table, then reason and repro of failed records, then the summary line.
void print_console(std::ostream& out, std::span<const Record> records, const ConsoleOptions& options);

/// "[ 12/136] pass  <name>  12.34 us": one line for a record that is finished. planned 0: no total.
std::string progress_line(const Record& r, int64_t done, int64_t planned, const ConsoleOptions& options);

/// Columns of the terminal at this file descriptor; 0 if it is not a terminal.
std::size_t terminal_width(int fd);

/// The width of the terminal at stdout, with colours unless NO_COLOR is set.
TableOptions style_of_stdout();

/// Prints what is known of a failure beside its reason, indented: clues, and the last lines that a worker
/// process wrote.
void print_details(std::ostream& out, const Record& record);

}  // namespace attnbench
