// Which output rows are compared with the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/facts/verdict.h"
#include "reference/backward.h"

namespace attnbench {

/// Up to this many FLOP, CheckMode::kSampled compares all rows of a case.
inline constexpr double kCheapFlop = 1e10;

/// The case as a problem of the reference, with the same float numbers that kernels receive.
reference::Problem problem_of(const Case& c);

/// The lowest 53 bits of the seed, which every reader of JSON keeps; if they are 0, others from the system's
/// randomness. Throws Error if it has none.
uint64_t seed_or_drawn(uint64_t seed);

/// A sample drawn by `seed`. It always holds the first and last row of each sequence, rows at page and tile
/// boundaries (16..256, +-1), every head at least once, and random rows: those of each sequence, and at least
/// 16 in four places. Rows of one place are of one KV head, because they then share the reference's loads.
std::vector<reference::RowId> sample_rows(const Case& c, uint64_t seed);

/// At most 16 random rows, drawn by `seed`: 8 in each of two sequences, of one KV head there.
std::vector<reference::RowId> few_rows(const Case& c, uint64_t seed);

/// The rows that are compared; the mode must not be kOff and the seed not 0.
std::vector<reference::RowId> rows_to_compare(const Case& c, const reference::Problem& problem,
                                              const Check& check);

/// Rows of dk and dv that are compared; the mode must not be kOff and the seed not 0. A sample has, of each sequence and one of its KV
/// heads, the first and last key, keys at tile boundaries and random ones. A key needs the forward pass of all
/// queries that see it: sequences come in the order of that cost as long as a budget lasts. Under a causal mask
/// a sequence that exceeds it gives its last keys, which few queries see.
std::vector<reference::KeyId> keys_to_compare(const Case& c, const reference::Problem& problem,
                                              const Check& check);

}  // namespace attnbench
