// The clue of rows that hold the results of other rows.
#pragma once

#include <span>
#include <string>

#include "harness/cases/case.h"
#include "harness/judge/scored_rows.h"

namespace attnbench {

/// Says whether half of the wrong rows hold the results of other rows, alone or beside their own. Each is compared with
/// all rows `of`. num_threads 0: all.
std::string rows_of_others(const CaseParams& p, const reference::Problem& problem,
                           const reference::Inputs& inputs, std::span<const WrongRow> wrong,
                           std::span<const reference::RowId> of, int num_threads);

}  // namespace attnbench
