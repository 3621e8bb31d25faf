// What several devices did in a launch that they shared, in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// For each timed record of several devices: its name, and lines with the times of its ranks.
std::vector<std::string> rank_lines(std::span<const Record> records);

}  // namespace attnbench
