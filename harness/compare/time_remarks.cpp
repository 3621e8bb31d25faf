#include "harness/compare/time_remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/results/text.h"

namespace attnbench {
namespace {

/// The samples that lie as far from the median as a usable interval may not reach, on the interval's far side.
std::string far_samples(const Record& r) {
  const double median = r.time->median_us;
  if (r.time->other_us > r.time->hi_us)
    return fmt::format(": {} by the timer, {} by a clock that a kernel cannot change", time_text(median),
                       time_text(r.time->other_us));
  const bool above = r.time->hi_us - median >= median - r.time->lo_us;
  const double edge = median * (above ? 1 + kVague : 1 - kVague);
  std::vector<double> far;
  for (const double us : r.samples_us()) {
    if (above ? us >= edge : us <= edge) far.push_back(us);
  }
  if (far.empty()) return "";
  const auto [least, most] = std::minmax_element(far.begin(), far.end());
  return fmt::format(": {} of {} samples took {} or {}, the median is {}", far.size(), r.samples_us().size(),
                     time_text(above ? *least : *most), above ? "more" : "less", time_text(median));
}

}  // namespace

std::string vague_time_text(const Record& base, const Record& fresh) {
  const bool of_fresh = fresh.time->half_interval() >= base.time->half_interval();
  const Record& worse = of_fresh ? fresh : base;
  if (!worse.time->vague()) return "";
  return fmt::format("the time of {} is known to +/- {} % only{}; run both sides again on a quiet machine",
                     of_fresh ? "NEW" : "BASE", digits(100 * worse.time->half_interval(), 2),
                     far_samples(worse));
}

std::string remark_on_times(const Record& base, const Record& fresh) {
  const auto speeds = [](const char* side, const Record& r) {
    // Pooled runs differ for other reasons, which their spread accounts for.
    const auto found = r.time->runs == 1 && !r.time->busy() ? two_speeds(r.samples_us()) : std::nullopt;
    return found ? fmt::format("two speeds in {}: {}", side, two_speeds_text(*found)) : std::string();
  };
  const std::string of_base = speeds("BASE", base), of_fresh = speeds("NEW", fresh);
  if (!of_base.empty() || !of_fresh.empty())
    return of_base + (of_base.empty() || of_fresh.empty() ? "" : "; ") + of_fresh;
  const bool in_base = base.time->clocks.throttled(), in_new = fresh.time->clocks.throttled();
  if (!in_base && !in_new) return "";
  return fmt::format("throttled in {}", !in_new ? "BASE" : in_base ? "both" : "NEW");
}

bool medians_say_more(const MedianRange& base, const MedianRange& fresh, double ratio, double effect) {
  const double medians = std::log(fresh.median / base.median), change = std::log(ratio);
  return medians * change >= 0 && std::abs(medians) > std::abs(change) + std::log1p(effect);
}

}  // namespace attnbench
