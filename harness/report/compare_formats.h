// A comparison for machines: JSON, JUnit, and GitHub's annotations.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "harness/compare/compare.h"

namespace attnbench {

/// {"summary", "exit_code", "interrupted", "stopped", "min_effect", "as_sol", "counts", "geomean", "sweeps",
/// "rows"}; worst row first.
void write_compare_json(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// One testsuite per sweep, one testcase per row. Slower, incorrect and missing are <failure>, errors are
/// <error>; inconclusive is <skipped>, as JUnit has no word for it, or <failure> where it fails the exit
/// code.
void write_compare_junit(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// Workflow commands (docs.github.com, "Workflow commands for GitHub Actions"): ::error for what fails the
/// exit code, ::warning for what is inconclusive, ::notice for the summary. GitHub shows ten of each kind, so
/// further ones are counted in the last.
void write_compare_github(std::ostream& out, const CompareResult& result, const CompareOptions& options);

/// "::error title=...::message" with everything escaped that would end the command or start another.
std::string github_command(std::string_view kind, std::string_view title, std::string_view message);

}  // namespace attnbench
