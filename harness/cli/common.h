// Checks of options and words of messages, shared by several subcommands.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace attnbench::cli {

/// "attnbench 0.1.0 (1a2b3c4d5e6f, Release build)".
std::string build_text();

/// A check for options that take a number: returns what is wrong with the text, or an empty string. "nan" is
/// not a number.
std::function<std::string(const std::string&)> number_in(double lo, double hi);

/// A check for options that name a file or a folder: returns what is wrong with the text, or an empty string.
std::string has_a_name(const std::string& text);

/// --require, of run and gate: types that attention kernels must declare (facts/declared_types.h).
void add_require_option(CLI::App& command, std::vector<std::string>& required);

/// Throws UsageError if `out` is one of the results files in `inputs`, or a file of results in one of the
/// folders in `inputs`.
void check_no_input(const std::string& out, const std::vector<std::string>& inputs);

/// "12,345".
std::string grouped(int64_t n);

/// "did you mean 'x'? " or an empty string.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace attnbench::cli
