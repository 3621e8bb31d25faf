// The clue of LSEs that are wrong in a way of their own.
#pragma once

#include <span>
#include <string>

#include "harness/cases/case.h"
#include "harness/judge/row_findings.h"

namespace attnbench {

/// What all wrong LSEs have in common: a factor or a term of the sum of exponentials, sinks that count several times, a
/// shift by ALiBi, the place of a neighbour. Empty if none of it fits all rows.
std::string wrong_sums(const reference::Problem& problem, std::span<const RowFinding> rows);
/// The shift by ALiBi alone, which leaves O right: it can stand beside any other mistake.
std::string alibi_shift(const reference::Problem& problem, std::span<const RowFinding> rows);

}  // namespace attnbench
