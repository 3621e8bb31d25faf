// Checks of options, and words of messages, that several subcommands share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace attnbench::cli {

/// "attnbench 0.1.0 (1a2b3c4d5e6f, Release build)".
std::string build_text();

/// For options that take a number: what is wrong with the text, empty where nothing is. Not a number (nan) is
/// none.
std::function<std::string(const std::string&)> number_in(double lo, double hi);

/// For options that name a file or a folder: what is wrong with the text, empty where nothing is.
std::string has_a_name(const std::string& text);

/// Throws UsageError where `out` is one of the results files that are read, or lies in one of the folders as
/// such.
void check_no_input(const std::string& out, const std::vector<std::string>& inputs);

/// "1 case", "2 cases".
std::string counted(int64_t count, const char* noun);

/// "Did you mean 'x'? " or nothing.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace attnbench::cli
