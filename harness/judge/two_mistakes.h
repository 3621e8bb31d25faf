// Recognises a kernel that makes two known mistakes at once.
#pragma once

#include <span>
#include <vector>

#include "harness/judge/mistakes.h"
#include "harness/judge/row_findings.h"

namespace attnbench {

/// The pairs of `mistakes` that explain all rows of `tried`, of which the first `wrong` are wrong. Nothing where these are
/// too few or see too many keys, and no pair of two that read other inputs. `right` is the case's own problem.
/// num_threads 0: all.
std::vector<Explanation> two_mistakes(const Launched& launched, const reference::Problem& right,
                                      std::span<const Mistake> mistakes,
                                      std::span<const reference::RowId> tried, std::size_t wrong,
                                      int num_threads);

}  // namespace attnbench
