// The exit code of a run: the worst one wins.
#pragma once

#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// The worse of two exit codes, in the order 130, 2, 5, 1, 3, 4, 6, 0 (harness/cli/README.md, exit codes).
int worse_exit_code(int a, int b);

/// The worst exit code of the records' statuses; 6 if no record ran.
int exit_code_of(const std::vector<Record>& records);

}  // namespace attnbench
