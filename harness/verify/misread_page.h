// The clue of a page that is read in place of another: the last one, from the page before it.
#pragma once

#include <optional>
#include <span>

#include "harness/verify/row_findings.h"

namespace attnbench {

/// The first mistake with which all rows `tried`, wrong and right ones, are right: K and V, or one of them, are read
/// a block_size too early in the last page of a sequence, or in the last page that a query sees, or there only if
/// the page is not full. nullopt if none fits, or if the cache is not paged or
/// has left padding. num_threads 0: all.
std::optional<Explanation> misread_page(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs,
                                        std::span<const reference::RowId> tried, int num_threads);

}  // namespace attnbench
