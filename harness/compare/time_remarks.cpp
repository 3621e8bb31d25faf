#include "harness/compare/time_remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/results/text.h"

namespace attnbench {
namespace {

/// The samples that lie as far from the median as a usable interval may not reach, on the interval's far side.
std::string far_samples(const LoadedResult& r) {
  const double median = *r.median_us;
  const bool above = *r.hi_us - median >= median - *r.lo_us;
  const double edge = median * (above ? 1 + kVague : 1 - kVague);
  std::vector<double> far;
  for (const double us : r.samples_us) {
    if (above ? us >= edge : us <= edge) far.push_back(us);
  }
  if (far.empty()) return "";
  const auto [least, most] = std::minmax_element(far.begin(), far.end());
  return fmt::format(": {} of {} samples took {} or {}, the median is {}", far.size(), r.samples_us.size(),
                     time_text(above ? *least : *most), above ? "more" : "less", time_text(median));
}

}  // namespace

std::string vague_time_text(const LoadedResult& base, const LoadedResult& fresh) {
  const bool of_fresh = fresh.half_interval() >= base.half_interval();
  const LoadedResult& worse = of_fresh ? fresh : base;
  if (!worse.vague()) return "";
  return fmt::format("the time of {} is known to +/- {} % only{}; run both sides again on a quiet machine",
                     of_fresh ? "NEW" : "BASE", digits(100 * worse.half_interval(), 2), far_samples(worse));
}

std::string remark_on_times(const LoadedResult& base, const LoadedResult& fresh) {
  const auto speeds = [](const char* side, const LoadedResult& r) {
    // Pooled runs differ for other reasons, which their spread accounts for.
    const auto found = r.runs == 1 && !r.busy() ? two_speeds(r.samples_us) : std::nullopt;
    return found ? fmt::format("two speeds in {}: {}", side, two_speeds_text(*found)) : std::string();
  };
  const std::string of_base = speeds("BASE", base), of_fresh = speeds("NEW", fresh);
  if (!of_base.empty() || !of_fresh.empty())
    return of_base + (of_base.empty() || of_fresh.empty() ? "" : "; ") + of_fresh;
  if (!base.throttled && !fresh.throttled) return "";
  return fmt::format("throttled in {}", !fresh.throttled ? "BASE" : base.throttled ? "both" : "NEW");
}

}  // namespace attnbench
