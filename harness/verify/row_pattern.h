// What the wrong rows of a case have in common, and the right ones have not.
#pragma once

#include <span>
#include <string>

#include "harness/verify/row_findings.h"

namespace attnbench {

/// "all wrong rows, and no right ones, are of heads 1, 2"; empty if no trait separates them.
std::string row_pattern(const CaseParams& p, std::span<const RowFinding> rows);

/// "1, 2, 5 to 8": ascending numbers.
std::string ranges_text(std::span<const int> numbers);

}  // namespace attnbench
