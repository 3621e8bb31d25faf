#include "harness/record/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/record/text.h"
#include "harness/verify/declared_types.h"

namespace attnbench {
std::string Coverage::text() const {
  return fmt::format("{} of {} case{}", ran, asked, asked == 1 ? "" : "s");
}

/// What an entry of results.json declares.
CoverageCounter::Declared CoverageCounter::declared_by(const LoadedResult& r) {
  if (r.entry == nullptr) return {};
  const nlohmann::json types =
      r.entry->value(nlohmann::json::json_pointer("/attnbench/check/numerics"), nlohmann::json());
  if (!types.is_object()) return {};
  const auto name = [&](const char* key) {
    const auto it = types.find(key);
    return it != types.end() && it->is_string() ? it->get<std::string>() : "?";
  };
  uint32_t waived = 0;
  for (const Waiver& w : kWaivers) {
    const auto it = types.find(w.key);
    if (it != types.end() && *it == true) waived |= w.flag;
  }
  return {fmt::format("acc {}, p {}{}", name("acc"), name("p"), waived_text(waived)), waived != 0};
}

void CoverageCounter::add(const std::string& kernel, Status status, const std::string& reason,
                          const Declared& declared) {
  auto it =
      std::find_if(kernels_.begin(), kernels_.end(), [&](const Entry& e) { return e.of.kernel == kernel; });
  if (it == kernels_.end()) {
    it = kernels_.insert(it, Entry());
    it->of.kernel = kernel;
  }
  ++it->of.asked;
  if (!declared.types.empty()) it->of.types.insert(declared.types);
  it->of.waived = it->of.waived || declared.waived;
  if (status != Status::kSkip) {
    ++it->of.ran;
    return;
  }
  auto& [count, first] = it->skips[without_numbers(reason)];
  if (count++ == 0) first = reason;
}

void CoverageCounter::add(const Record& r) {
  Declared declared;
  if (r.check && r.check->numerics) {
    const DeclaredTypes& types = *r.check->numerics;
    declared = {types_text(types), types.waived != 0};
  }
  add(r.kernel, r.status, r.reason, declared);
}

void CoverageCounter::add(const LoadedResult& r) { add(r.kernel, r.status, r.reason, declared_by(r)); }

std::vector<Coverage> CoverageCounter::all() const {
  std::vector<Coverage> out;
  for (const Entry& e : kernels_) {
    out.push_back(e.of);
    int64_t most = 0;
    for (const auto& [words, skips] : e.skips) {
      if (skips.first <= most) continue;
      most = skips.first;
      out.back().skipped_for = skips.second;
    }
  }
  return out;
}

std::vector<Coverage> coverage_of(std::span<const Record> records) {
  CoverageCounter counter;
  for (const Record& r : records) counter.add(r);
  return counter.all();
}

std::vector<std::string> too_little_run(std::span<const LoadedResult> results, double percent) {
  std::vector<std::string> out;
  CoverageCounter counter;
  for (const LoadedResult& r : results) counter.add(r);
  for (const Coverage& c : counter.all()) {
    if (c.percent() >= percent) continue;
    out.push_back(fmt::format(
        "{} ran {} ({} %), and --min-coverage asks for {:g} %; most were skipped for: {}",
        c.kernel.empty() ? "no kernel" : c.kernel, c.text(), digits(c.percent(), 3), percent, c.skipped_for));
  }
  return out;
}

}  // namespace attnbench
