// Regular expressions that users type. Their syntax is RE2's, and a search takes time linear in the text.
#pragma once

#include <functional>
#include <string>

namespace attnbench::cli {

/// Returns a function that says whether `pattern`, the value of `option`, is found anywhere in a text. Both
/// are taken as bytes. Throws UsageError if it is no regular expression, or one that needs more than 8 MiB.
std::function<bool(const std::string&)> finder(const std::string& option, const std::string& pattern);

}  // namespace attnbench::cli
