// The clue of query heads that read other KV heads than theirs, by whatever rule.
#pragma once

#include <optional>
#include <span>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// "query heads read other KV heads than h / 4: head 4 reads 4, head 8 reads 0", if for each query head of the rows `wrong`
/// there is another KV head whose K and V explain all of its rows. num_threads 0: all.
std::optional<Explanation> misread_heads(const Launched& launched, const reference::Problem& right,
                                         const reference::Inputs& inputs,
                                         std::span<const reference::RowId> wrong, int num_threads);

}  // namespace attnbench
