// The exit code of a run: worst wins.
#pragma once

#include <vector>

#include "harness/record/record.h"

namespace attnbench {

/// The worse of two exit codes, in the order 2, 5, 1, 3, 4, 6, 0 (README, exit codes).
int worse_exit_code(int a, int b);

/// The worst of what the records ended with; 6 where none ran.
int exit_code_of(const std::vector<Record>& records);

}  // namespace attnbench
