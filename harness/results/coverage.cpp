#include "harness/results/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "harness/error.h"
#include "harness/judge/declared_types.h"
#include "harness/results/json_read.h"
#include "harness/results/text.h"

namespace attnbench {
std::string Coverage::text() const {
  return fmt::format("{} of {} case{}", ran, asked, asked == 1 ? "" : "s");
}

void CoverageCounter::add(const std::string& kernel, Status status, const std::string& reason,
                          const Declared* declared) {
  auto it =
      std::find_if(kernels_.begin(), kernels_.end(), [&](const Entry& e) { return e.of.kernel == kernel; });
  if (it == kernels_.end()) {
    it = kernels_.insert(it, Entry());
    it->of.kernel = kernel;
  }
  ++it->of.asked;
  if (declared != nullptr) {
    it->of.types.insert(types_text(*declared));
    it->of.waived = it->of.waived || declared->waived != 0;
  }
  if (status != Status::kSkip) {
    ++it->of.ran;
    return;
  }
  auto& [count, first] = it->skips[without_numbers(reason)];
  if (count++ == 0) first = reason;
}

void CoverageCounter::add(const Record& r) {
  add(r.kernel, r.status, r.reason, r.check && r.check->declared ? &*r.check->declared : nullptr);
}

void CoverageCounter::add(const LoadedResult& r) {
  std::optional<Declared> declared;
  const nlohmann::json_pointer<std::string> place("/attnbench/check/numerics");
  if (r.entry != nullptr && r.entry->contains(place)) {
    try {
      declared = declared_from_json(nlohmann::ordered_json(r.entry->at(place)));
    } catch (const Error&) {  // null, or edited by hand
    }
  }
  add(r.kernel, r.status, r.reason, declared ? &*declared : nullptr);
}

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
