// The layout of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attnbench::cli {

/// `text` in lines of at most `width` characters, broken between words. A longer word gets a line of its own.
std::string wrapped(const std::string& text, std::size_t width);

/// Puts options under headings, in the order in which the command has them; --help goes to the last one.
void group_options(CLI::App& command,
                   const std::vector<std::pair<std::string, std::vector<std::string>>>& headings);

/// CLI11's formatter, with descriptions in lines that a terminal does not break.
std::shared_ptr<CLI::Formatter> help_formatter();

}  // namespace attnbench::cli
