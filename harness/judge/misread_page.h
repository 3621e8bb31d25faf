// The clue of pages that are read in place of others.
#pragma once

#include <optional>
#include <span>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// The first mistake with which all rows `tried`, wrong and right ones, are right. K and V, or one of them, are read
/// from the page before in the last page of a sequence, or in the last page that a query sees, or there only if the
/// page is not full, or in all pages; or two neighbouring pages change places; or the first of two is read twice.
/// nullopt if none fits, or if the cache is not paged or has left padding. num_threads 0: all.
std::optional<Explanation> misread_page(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs,
                                        std::span<const reference::RowId> tried, int num_threads);

/// One page of K, V or both of each sequence with wrong rows that is read from one other page of the batch, if such pages
/// explain all rows tried of these sequences, of which the first `wrong` are wrong. `lse`: their LSE is wrong, too. Same
/// limits; at most three sequences, and few pages.
std::optional<Explanation> misread_one_page(const Launched& launched, const reference::Problem& right,
                                            const reference::Inputs& inputs,
                                            std::span<const reference::RowId> tried, std::size_t wrong,
                                            bool lse, int num_threads);

}  // namespace attnbench
