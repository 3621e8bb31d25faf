// For many failed cases: which to look at first, and what they have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// At most `most` of the records that need attention: of each kind of failure those of least work. Broken invariants come
/// last; otherwise they are in the order of `records`.
std::vector<const Record*> simplest_failures(std::span<const Record> records, std::size_t most);

/// One or more lines for each kernel with several failed attention cases: what separates them from the passed
/// cases, and the most common clue. Examples: "mine: all wrong cases, and 2 of 39 right ones, have more query
/// heads than KV heads", "mine: 83 of 108 wrong cases look like: all query heads read KV head 0". A kernel
/// without either has no line.
std::vector<std::string> failure_patterns(std::span<const Record> records);

}  // namespace attnbench
