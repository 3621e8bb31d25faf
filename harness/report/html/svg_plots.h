// The main plots as SVG files, for a README or a pull request.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/results/load.h"

namespace attnbench {

/// File name and text of each plot for which the results have data: roofline.svg, rate_by_length.svg,
/// decode_latency.svg.
std::vector<std::pair<std::string, std::string>> svg_plots(std::span<const ResultSet> sets);

}  // namespace attnbench
