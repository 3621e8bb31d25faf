// Which output rows are compared with the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/verify/verdict.h"
#include "reference/backward.h"

namespace attnbench {

/// Up to this many FLOP, CheckMode::kSampled compares all rows of a case.
inline constexpr double kCheapFlop = 1e10;

/// The case as a problem of the reference, with the same float numbers that kernels receive.
reference::Problem problem_of(const Case& c);

/// A deterministic sample that always holds the first and last row of each sequence, rows at page and tile
/// boundaries (16..256, +-1), every head at least once, and random rows. Rows of one sequence are taken from
/// one KV head where possible, because they then share the reference's loads.
std::vector<reference::RowId> sample_rows(const Case& c);

/// At most 16 random rows, drawn by the case's seed: 8 in each of two sequences, of one KV head there.
std::vector<reference::RowId> few_rows(const Case& c);

/// The rows that `mode` compares; it must not be kOff.
std::vector<reference::RowId> rows_to_compare(const Case& c, const reference::Problem& problem,
                                              CheckMode mode);

/// Rows of dk and dv that `mode` compares; it must not be kOff. A sample has, of each sequence and one of its KV
/// heads, the first and last key, keys at tile boundaries and random ones. A key needs the forward pass of all
/// queries that see it: sequences come in the order of that cost as long as a budget lasts. Under a causal mask
/// a sequence that exceeds it gives its last keys, which few queries see.
std::vector<reference::KeyId> keys_to_compare(const Case& c, const reference::Problem& problem,
                                              CheckMode mode);

}  // namespace attnbench
