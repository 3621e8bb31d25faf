// Which output rows are compared with the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "reference/reference.h"

namespace attnbench {

/// At or under this much arithmetic a case is verified in full even when a sample would do.
inline constexpr double kCheapFlop = 1e10;

reference::Problem problem_of(const Case& c);

/// A deterministic sample that always holds the first and last row of each sequence, rows at page and tile
/// boundaries (16..256, +-1), every head at least once, and random rows. Rows of one sequence are drawn from
/// one KV head where they can be, because they share the reference's loads.
std::vector<reference::RowId> sample_rows(const Case& c);

}  // namespace attnbench
