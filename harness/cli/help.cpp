#include "harness/cli/help.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "harness/report/console.h"

namespace attnbench::cli {
namespace {

constexpr std::size_t kNames = 30;  ///< width of names and types
constexpr std::size_t kLine = 110;  ///< longest line; a narrower terminal sets its own width
constexpr std::size_t kLeastText = 30;

std::size_t text_width() {
  const std::size_t terminal = terminal_width(STDOUT_FILENO);
  const std::size_t line = terminal == 0 ? kLine : std::min(terminal, kLine);
  return std::max(line, kNames + kLeastText) - kNames;
}

class Wrapping : public CLI::Formatter {
 public:
  Wrapping() { column_width(kNames); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), text_width());
  }
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (std::size_t at = 0; (at = text.find("\n\n\n", at)) != std::string::npos;)
      text.erase(at, 1);  // left by hidden options
    return text;
  }
};

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string out;
  std::size_t used = 0;
  for (std::string word; words >> word;) {
    if (used > 0) {
      const bool fits = used + 1 + word.size() <= width;
      out += fits ? ' ' : '\n';
      used = fits ? used + 1 : 0;
    }
    out += word;
    used += word.size();
  }
  return out;
}

void group_options(CLI::App& command,
                   const std::vector<std::pair<std::string, std::vector<std::string>>>& headings) {
  for (const auto& [heading, names] : headings) {
    for (const std::string& name : names) command.get_option(name)->group(heading);
  }
  command.get_help_ptr()->group(headings.back().first);
}

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<Wrapping>(); }

}  // namespace attnbench::cli
