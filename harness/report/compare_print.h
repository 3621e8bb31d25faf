// A comparison as a text table for a terminal and as GitHub Markdown.
#pragma once

#include <iosfwd>
#include <set>
#include <string>

#include "harness/compare/compare.h"
#include "harness/report/table.h"

namespace attnbench {

/// "2 slower, 1 inconclusive, 120 same, 3 faster; geometric mean of new / base 1.004 over 126 cases"
std::string compare_summary(const CompareResult& result);

/// The interval of a ratio in percent: "+4.10 .. +5.90". Where it is so wide that its ends say nothing: "> +4.10",
/// "< -4.10" or "over 10x wide".
std::string interval_text(double lo, double hi);

/// "geometric mean by sweep (cases): prefill 1.004 (12), decode 0.98 (30)"; empty if there is one sweep.
std::string sweep_means(const CompareResult& result);

/// Prints the table, then reason and repro of rows in error or incorrect, then the summary line. `told` holds
/// failures whose reasons were printed before: "<id>/<kernel>" of NEW.
void print_compare(std::ostream& out, const CompareResult& result, const TableOptions& options,
                   const std::set<std::string>& told = {});

void write_compare_markdown(std::ostream& out, const CompareResult& result);

}  // namespace attnbench
