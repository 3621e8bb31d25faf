// Undecided cases of a gate: why they are undecided, in words, and whether more runs may decide them.
#pragma once

#include <string>
#include <vector>

#include "harness/compare/compare.h"

namespace attnbench {

/// Runs to come, of each side.
struct MoreRuns {
  int base = 0, fresh = 0;
};

/// More rounds go on only while one undecided case has at least this chance to be decided by them.
inline constexpr double kLeastChance = 0.1;

/// The chance that `more` runs decide this row, whose doubt is kInterval: that they make it slower, faster or
/// same, or show that it is not slower. The interval shrinks as the noise between runs (noise_half_width) and
/// the bootstrap leave it with so many more runs; its centre moves by what it is uncertain by now and will
/// not be then, as a normal variable.
double chance_to_decide(const CompareRow& row, const MoreRuns& more);

/// An undecided row, and whether it shows a difference that only one run of NEW has seen.
struct OpenRow {
  const CompareRow* row;
  bool one_run = false;
};

/// Why the interval of this row, whose doubt is kInterval, leaves it undecided: "the change is known to +/- 5.5 %
/// only, and 5 % is looked for".
std::string interval_reason(const CompareRow& row);

/// Why these rows are undecided: a line for each reason, with how many cases it holds for and the first ids,
/// as in "2 cases: equal runs scatter by 6.1 to 8 % (standard deviation), more than the 2 % looked for (ID, ID)".
std::vector<std::string> why_undecided(const std::vector<OpenRow>& rows);

/// "45 s", "3 min", "2 h 5 min": rounded, or with `at_most` rounded up.
std::string duration_text(double seconds, bool at_most = false);

}  // namespace attnbench
