// The clue of descales that are read elsewhere: a factor for each sequence and KV head, and of an e4m3 output.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// Says that O, or the logits, of each sequence and KV head are right but for a factor of their own. Only for quantised
/// inputs. `rows` are the findings on the case's own problem. num_threads 0: all.
std::string group_factors(const Launched& launched, const reference::Problem& right,
                          const reference::Inputs& inputs, std::span<const RowFinding> rows, int num_threads);

/// Says that O in e4m3 is not divided by its scale, or multiplied by it. of: stored numbers, and the right O.
std::string out_scale_clue(const Case& c, std::span<const std::pair<double, double>> of);

}  // namespace attnbench
