#include "harness/cli/pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <memory>

#include "harness/cli/usage_error.h"
#include "harness/results/text.h"

namespace attnbench::cli {

std::function<bool(const std::string&)> finder(const std::string& option, const std::string& pattern) {
  RE2::Options options(RE2::Latin1);
  options.set_log_errors(false);
  const auto re = std::make_shared<const RE2>(pattern, options);
  if (!re->ok()) {
    throw UsageError(fmt::format(
        "{} '{}' is not a regular expression: {}; the syntax is RE2's (github.com/google/re2/wiki/Syntax), "
        "which has no lookahead (?=...) and no back references \\1",
        option, shorten_end(pattern, 200), shorten_end(re->error(), 200)));
  }
  return [re](const std::string& text) { return RE2::PartialMatch(text, *re); };
}

}  // namespace attnbench::cli
