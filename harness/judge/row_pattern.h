// What the wrong rows of a case have in common, and the right ones have not.
#pragma once

#include <span>
#include <string>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// "all wrong rows, and no right ones, are of heads 1, 2"; empty if no trait separates them.
std::string row_pattern(const CaseParams& p, std::span<const RowFinding> rows);

/// Says that wrong LSEs stand in the order (total_q, Hq), where (Hq, total_q) is required; empty if they do not. `lse`: as
/// the launch left it.
std::string lse_order(const CaseParams& p, std::span<const RowFinding> rows, std::span<const float> lse);

/// What the LSEs of rows with NaN tell of it: that they were not written, or perhaps that exponentials left their range.
/// Empty if there is none, or only another launch can tell (session/experiments.h).
std::string nan_source(const CaseParams& p, std::span<const RowFinding> rows);

/// "seq 1 pos 2 head 3".
std::string row_text(const reference::RowId& id);

/// "1, 2, 5 to 8": ascending numbers.
std::string ranges_text(std::span<const int> numbers);

}  // namespace attnbench
