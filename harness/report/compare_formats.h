// A comparison for machines: JSON, JUnit and GitHub annotations.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "harness/compare/compare.h"

namespace attnbench {

/// {"summary", "exit_code", "interrupted", "stopped", "min_effect", "as_sol", "counts", "geomean", "sweeps",
/// "rows"}; worst row first.
void write_compare_json(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// One testsuite per sweep, one testcase per row. Slower, incorrect and missing rows are <failure>; errors
/// are <error>. An inconclusive row is <failure> if it fails the exit code. Else it is <skipped>, because
/// JUnit has no status for it.
void write_compare_junit(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// Workflow commands (docs.github.com, "Workflow commands for GitHub Actions"): ::error for rows that fail
/// the exit code, ::warning for inconclusive rows, ::notice for the summary. GitHub shows ten of each kind,
/// so the last one counts the rest.
void write_compare_github(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// "::error title=...::message". Characters that would end the command or start another are escaped.
std::string github_command(std::string_view kind, std::string_view title, std::string_view message);

}  // namespace attnbench
