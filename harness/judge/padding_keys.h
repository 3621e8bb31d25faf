// The clue of keys behind the end of a sequence that were zeroed, but not masked.
#pragma once

#include <span>
#include <string>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// Says that zeroed keys behind the last one, as many as fill the last page or tile, count in the sums of weights with a
/// score of 0; empty if the LSEs of the wrong rows do not say so. A value of 0 beside each adds nothing to O, so O is
/// right but for a factor.
std::string padding_keys(const CaseParams& p, std::span<const RowFinding> rows);

}  // namespace attnbench
