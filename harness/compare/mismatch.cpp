#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/compare/compare.h"

namespace attnbench {
namespace {

/// "off", "sampled", "full and invariants", "refusal", ...; empty if unknown.
std::string check_of(const Record& r) {
  if (!r.check) return r.kernel.empty() ? "" : "off";
  return r.check->method + (r.check->invariants.empty() ? "" : " and invariants");
}

}  // namespace

std::vector<std::string> context_mismatches(const ResultSet& base, const ResultSet& fresh) {
  std::vector<std::string> out;
  const auto compare = [&](const char* what, const std::string& b, const std::string& f) {
    if (!b.empty() && !f.empty() && b != f)
      out.push_back(fmt::format("{}: '{}' in BASE, '{}' in NEW", what, b, f));
  };
  const RunContext &b = base.context, &f = fresh.context;
  compare("device", b.device.model, f.device.model);
  compare("driver", b.device.driver, f.device.driver);
  compare("CUDA", b.device.runtime, f.device.runtime);
  compare("build type", b.build_type, f.build_type);
  const auto states_threads = [](const DeviceInfo& d) { return d.kind == DeviceKind::kCpu && d.threads > 0; };
  if (states_threads(b.device) && states_threads(f.device)) {
    compare("host threads (--threads)", std::to_string(b.device.threads), std::to_string(f.device.threads));
  }
  const auto modes = [](const ResultSet& set, auto of) {  // all that occur, sorted
    std::set<std::string> seen;
    for (const Record& r : set.results) {
      if (r.median_us() && !r.kernel.empty()) seen.insert(of(r));
    }
    std::string text;
    for (const std::string& s : seen) text += (text.empty() ? "" : ", ") + s;
    return text;
  };
  const auto cache = [](const Record& r) { return std::string(cache_mode_name(r.time->cache)); };
  const auto graph = [](const Record& r) { return std::string(r.time->graph ? "yes" : "no"); };
  const auto clock = [](const Record& r) { return std::string(clock_name(r.time->clock)); };
  compare("cache state (--cache)", modes(base, cache), modes(fresh, cache));
  compare("clock (--clock)", modes(base, clock), modes(fresh, clock));
  compare("graph replay (--graph)", modes(base, graph), modes(fresh, graph));
  // A case's time depends on what ran before it, and verification runs before it. This is checked by case,
  // because a part of a sweep may have other modes than the whole.
  std::map<std::string, std::set<std::string>> checks;
  const auto timed = [](const Record& r) { return r.median_us() && !check_of(r).empty(); };
  for (const Record& r : base.results) {
    if (timed(r)) checks[r.item.id].insert(check_of(r));
  }
  for (const Record& r : fresh.results) {
    const auto it = checks.find(r.item.id);
    if (!timed(r) || it == checks.end() || it->second.contains(check_of(r))) continue;
    out.push_back(
        fmt::format("check: '{}' in BASE, '{}' in NEW (--check): verification before a case shows in its "
                    "time, for {}",
                    *it->second.begin(), check_of(r), r.item.id));
    break;
  }
  return out;
}

}  // namespace attnbench
