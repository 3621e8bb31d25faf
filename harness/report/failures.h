// Of many cases that went wrong: which to look at first, and what they have in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/record/record.h"

namespace attnbench {

/// At most `most` of the records that need attention, those of least work, in the order of `records`.
std::vector<const Record*> simplest_failures(std::span<const Record> records, std::size_t most);

/// For each kernel of which several attention cases failed, what tells them from those that passed, and the
/// clue that most have: "mine: all wrong cases, and 2 of 39 right ones, have more query heads than KV heads",
/// "mine: 83 of 108 wrong cases look like: all query heads read KV head 0". No line where there is none.
std::vector<std::string> failure_patterns(std::span<const Record> records);

}  // namespace attnbench
