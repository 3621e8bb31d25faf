// How many rows of a case are wrong, in what, and by how much.
#pragma once

#include <span>
#include <string>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// "64 of 136 rows looked at are wrong, in O and LSE; 12 are NaN; only channels 32 to 63 of 128".
/// `every`: these are all rows of the case. `named`: a clue names a cause.
std::string row_count_text(const CaseParams& p, std::span<const RowFinding> rows, bool every, bool lse_given,
                           bool named);

}  // namespace attnbench
