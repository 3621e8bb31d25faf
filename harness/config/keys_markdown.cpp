#include <fmt/format.h>

#include "harness/config/keys.h"

namespace attnbench {
namespace {

/// The values of a key, in Markdown: `values` if it has them, else what its schema says.
std::string values_of(const SweepKey& key) {
  if (!key.values.empty()) return key.values;
  if (const auto words = key.schema.find("enum"); words != key.schema.end()) {
    std::string text;
    for (const auto& word : *words)
      text += fmt::format("{}`{}`", text.empty() ? "" : ", ", word.get<std::string>());
    return text;
  }
  if (key.schema.at("type") == "boolean") return "`true`, `false`";
  const auto bound = [&](const char* name) {
    return key.schema.contains(name) ? key.schema.at(name).dump() : "";
  };
  if (const std::string below = bound("exclusiveMaximum"); !below.empty())
    return fmt::format("{} to below {}", bound("minimum"), below);
  if (const std::string most = bound("maximum"); !most.empty())
    return fmt::format("{} to {}", bound("minimum"), most);
  const std::string least = bound("minimum");
  return least.empty() ? "any finite number" : fmt::format("number >= {}", least);
}

}  // namespace

std::string keys_markdown() {
  const CaseParams defaults;
  std::string required, others, tokens;
  for (const SweepKey& key : sweep_keys()) {
    if (key.tokens) tokens += fmt::format("`{}`, ", key.name);
    const std::string text = key.text(defaults);
    const bool is_word = text.find_first_not_of("0123456789.") != std::string::npos;
    const auto row = [&](const std::string& value) {
      return fmt::format("| `{}` | {} | {} | {} |\n", key.name, values_of(key), value, key.doc);
    };
    if (key.name == "batch") {
      required += row("must be given");
    } else {
      others += row(is_word ? "`" + text + "`" : text);
    }
  }
  return "| key | values | default | meaning |\n|---|---|---|---|\n" + required + others +
         fmt::format(
             "\nA number of tokens may end in `k` (1024) or `m` (1024 squared): in {}and in the lengths of "
             "`batch`.\n",
             tokens);
}

}  // namespace attnbench
