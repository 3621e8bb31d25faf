#include "harness/fuzz/draft.h"

#include <fmt/format.h>

#include <utility>

#include "harness/config/batch_spec.h"

namespace attnbench {
namespace {

constexpr std::size_t kMostRemembered = 4096;
constexpr const char* kPlace = "--case";

/// Quotes a value with a comma, which would end the value in a flow mapping.
std::string yaml_of(const std::string& value) {
  return value.find(',') == std::string::npos ? value : '"' + value + '"';
}

}  // namespace

std::string mapping_of(const Draft& draft) {
  std::string text = "{";
  for (const auto& [key, value] : draft.values) text += fmt::format("{}: {}, ", key, yaml_of(value));
  return text + fmt::format("batch: {}}}", format_batch_spec(draft.seqs));
}

const Setting& DraftReader::setting(const std::string& key, const std::string& value) {
  const std::string text = fmt::format("{{{}: {}}}", key, yaml_of(value));
  const auto known = read_before_.find(text);
  if (known != read_before_.end()) return known->second;
  if (read_before_.size() >= kMostRemembered) read_before_.clear();
  SweepFile file = parse_inline_case(text);
  return read_before_.emplace(text, std::move(file.sweeps.at(0).fixed.at(0))).first->second;
}

std::optional<Case> DraftReader::read(const Draft& draft) {
  SweepFile file;
  file.path = kPlace;
  file.name = "fuzz";
  file.seed = draft.seed;
  Sweep sweep;
  sweep.name = "fuzz";
  sweep.place = kPlace;
  try {
    for (const auto& [key, value] : draft.values) sweep.fixed.push_back(setting(key, value));
    sweep.fixed.push_back({"batch", "", [&](CaseParams& p) { p.seqs = draft.seqs; }, kPlace});
    file.sweeps.push_back(std::move(sweep));
    Expansion e = expand(file);
    return std::move(e.cases.at(0));
  } catch (const ConfigError& e) {
    why_ = e.what();
    return std::nullopt;
  }
}

}  // namespace attnbench
