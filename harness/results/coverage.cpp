#include "harness/results/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/facts/declared_types.h"
#include "harness/results/text.h"

namespace attnbench {
std::string Coverage::text() const { return fmt::format("{} of {}", ran, counted(asked, "case")); }

void CoverageCounter::add(const Record& r) {
  auto it = std::ranges::find_if(kernels_, [&](const Entry& e) { return e.of.kernel == r.kernel; });
  if (it == kernels_.end()) {
    it = kernels_.insert(it, Entry());
    it->of.kernel = r.kernel;
  }
  ++it->of.asked;
  if (r.check && r.check->declared) {
    it->of.types.insert(types_text(*r.check->declared));
    it->of.waived = it->of.waived || r.check->declared->waived != 0;
  }
  if (r.status != Status::kSkip) {
    ++it->of.ran;
    return;
  }
  auto& [count, first] = it->skips[without_numbers(r.reason)];
  if (count++ == 0) first = r.reason;
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

std::vector<std::string> too_little_run(std::span<const Record> results, double percent) {
  std::vector<std::string> out;
  for (const Coverage& c : coverage_of(results)) {
    if (c.percent() >= percent) continue;
    out.push_back(fmt::format(
        "{} ran {} ({} %), and --min-coverage asks for {:g} %; most were skipped for: {}",
        c.kernel.empty() ? "no kernel" : c.kernel, c.text(), digits(c.percent(), 3), percent, c.skipped_for));
  }
  return out;
}

}  // namespace attnbench
