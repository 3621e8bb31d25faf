#include "harness/cli/help.h"

#include <sstream>

namespace attnbench::cli {
namespace {

constexpr std::size_t kNames = 30;  ///< columns of names and types
constexpr std::size_t kLine = 110;

class Wrapping : public CLI::Formatter {
 public:
  Wrapping() { column_width(kNames); }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), kLine - kNames);
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

std::shared_ptr<CLI::Formatter> help_formatter() { return std::make_shared<Wrapping>(); }

}  // namespace attnbench::cli
