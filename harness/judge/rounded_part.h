// Recognises a kernel that rounds an intermediate (q, K, V, scores, P or O) to fewer digits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/judge/row_findings.h"
#include "harness/judge/scored_rows.h"

namespace attnbench {

/// What is rounded, in words, if rounding it in the reference gives most of the error of `rows`; all that fit. `in_o`,
/// `in_lse`: which of their parts are wrong. `problem` and `inputs` are the case's own.
std::vector<std::string> rounded_parts(const Launched& launched, const reference::Problem& problem,
                                       const reference::Inputs& inputs, std::span<const WrongRow> rows,
                                       bool in_o, bool in_lse, int num_threads);

}  // namespace attnbench
