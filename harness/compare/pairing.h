// Which result of one set is held against which of the other.
#pragma once

#include <utility>
#include <vector>

#include "harness/compare/compare.h"

namespace attnbench {

/// A pair; null where the other side has no counterpart.
using ResultPair = std::pair<const LoadedResult*, const LoadedResult*>;

/// Within a case (and kernel, unless matched by id alone) the same kernel on the same device goes together
/// first, then the same kernel, then what is left over if that is one on each side. In the order of BASE,
/// then what only NEW has.
std::vector<ResultPair> pair_results(const ResultSet& base, const ResultSet& fresh, Match match);

}  // namespace attnbench
