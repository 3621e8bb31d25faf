// For many failed cases: which to look at first, and what they have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// A record that needs attention.
struct RankedFailure {
  const Record* record;
  std::size_t alike;  ///< failures of its kind, if it is the one of least work; else 0
  std::size_t kind;   ///< number of its kind

  /// "12 failures are of this kind: here is the one of least work"; empty if it is not the first of several.
  std::string alike_text() const;
};

/// The records that need attention: one of each kind of failure, that of least work, then the next of each. Errors come
/// first, then frequent kinds. Broken invariants come last.
std::vector<RankedFailure> ranked_failures(std::vector<const Record*> records);
std::vector<RankedFailure> ranked_failures(std::span<const Record> records);

/// One or more lines for each kernel with several failed attention cases: what separates them from the passed
/// cases, and the most common clue. Examples: "mine: all wrong cases, and 2 of 39 right ones, have more query
/// heads than KV heads", "mine: 83 of 108 wrong cases look like: all query heads read KV head 0". A kernel
/// without either has no line.
std::vector<std::string> failure_patterns(std::span<const Record> records);

}  // namespace attnbench
