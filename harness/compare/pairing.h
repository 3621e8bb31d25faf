// Decides which result of one set is compared with which of the other.
#pragma once

#include <utility>
#include <vector>

#include "harness/compare/compare.h"

namespace attnbench {

/// A pair; a side is null if it has no counterpart.
using ResultPair = std::pair<const Record*, const Record*>;

/// Pairs results within a case (and kernel, unless `match` is kId). First the same kernel on the same device,
/// then the same kernel, then the remaining ones if there is one on each side. The pairs are in the order of
/// BASE; results that only NEW has come last.
std::vector<ResultPair> pair_results(const ResultSet& base, const ResultSet& fresh, Match match);

}  // namespace attnbench
