// Ids, inline YAML and normal form of a case: loops over the table of keys.
#include <fmt/format.h>

#include "harness/cases/case.h"
#include "harness/config/keys.h"

namespace attnbench {

std::string case_id(const CaseParams& p) {
  std::string id;
  for (const SweepKey& key : sweep_keys()) {
    if (key.label && key.applies(p)) id += key.label(p);
  }
  return id;
}

std::string case_yaml(const CaseParams& p, const std::string& batch) {
  static const CaseParams defaults;
  std::string y;
  for (const SweepKey& key : sweep_keys()) {
    if (!key.applies(p)) continue;
    const bool drawn = !batch.empty() && key.name == "batch";
    const std::string text = drawn ? batch : key.text(p);
    if (!key.written && text == key.text(defaults)) continue;
    // A bare comma would end the value.
    const char* quote = !drawn && text.find(',') != std::string::npos ? "\"" : "";
    y += fmt::format("{}{}: {}{}{}", y.empty() ? "{" : ", ", key.name, quote, text, quote);
  }
  return y + "}";
}

CaseParams normalised(CaseParams p) {
  for (const SweepKey& key : sweep_keys()) {
    if (!key.applies(p)) key.reset(p);
    if (key.unify) key.unify(p);
  }
  return p;
}

}  // namespace attnbench
