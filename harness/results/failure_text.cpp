#include "harness/results/failure_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace attnbench {

std::string failure_text(const std::string& reason, std::span<const std::string> failed_by) {
  if (failed_by.empty()) return reason;
  std::vector<std::string> names;  // a detector may fire twice
  for (const std::string& name : failed_by) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fmt::format("{} [{}]", reason, fmt::join(names, ", "));
}

}  // namespace attnbench
