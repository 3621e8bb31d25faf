// compare --by kernel: the kernels of one run beside each other.
#pragma once

#include <iosfwd>

#include "harness/report/table.h"
#include "harness/results/load.h"

namespace attnbench {

/// Prints a row per case and a column per kernel: the median time, and how many times the fastest kernel's it
/// is, with "~" where the two intervals overlap. Below: for each kernel in how many cases it is fastest, why it
/// skipped cases, and what failed with the line that repeats it. A case that a single kernel has a time of,
/// and a time with the mark `!` or `?` (is_ranked in summary.h), count for none. Kernels are in order of speed.
void print_kernel_matrix(std::ostream& out, const ResultSet& run, const TableOptions& options);

/// The same as Markdown.
void write_kernel_matrix_markdown(std::ostream& out, const ResultSet& run);

/// The same as JSON: `context` of the run; `kernels` in order of speed; `cases` with the median in microseconds
/// of each kernel that passed, or its status; `us_per_token` (compare/token_time.h).
void write_kernel_matrix_json(std::ostream& out, const ResultSet& run);

}  // namespace attnbench
