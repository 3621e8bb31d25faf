// What a wrong output says about the mistake behind it.
#pragma once

#include <string>
#include <vector>

#include "harness/verify/row_findings.h"

namespace attnbench {

/// Sentences about the wrong rows of an attention case: how many of how many and what tells them from the
/// right ones; whether they are other rows, or multiples of the right ones; and the known mistakes
/// (suspects.h) whose result they are, within the tolerance. Empty where no row alone is wrong. Takes about
/// as long as the comparison did. threads 0: all.
std::vector<std::string> clues_of(const Launched& launched, int num_threads = 0);

}  // namespace attnbench
