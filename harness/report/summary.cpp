#include "harness/report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace attnbench {

Summary summarise(std::span<const Record> records) {
  Summary s;
  for (const Record& r : records) {
    switch (r.status) {
      case Status::kPass:
        ++s.passed;
        s.unchecked += !r.check;
        break;
      case Status::kFail:
        ++s.failed;
        break;
      case Status::kSkip:
        ++s.skipped;
        break;
      case Status::kTimeout:
        ++s.timeouts;
        [[fallthrough]];
      case Status::kError:
        ++s.errors;
        break;
      case Status::kInvalidTime:
        ++s.invalid_times;
        break;
    }
  }
  return s;
}

std::string summary_text(const Summary& s) {
  const std::string unchecked = s.unchecked > 0 ? fmt::format(" ({} not checked)", s.unchecked) : "";
  std::string text = fmt::format("{} passed{}, {} failed, {} skipped, {} error{}", s.passed, unchecked,
                                 s.failed, s.skipped, s.errors, s.errors == 1 ? "" : "s");
  if (s.timeouts > 0) text += fmt::format(" ({} timeout{})", s.timeouts, s.timeouts == 1 ? "" : "s");
  if (s.invalid_times > 0) {
    text += fmt::format(", {} invalid time{}", s.invalid_times, s.invalid_times == 1 ? "" : "s");
  }
  return text;
}

bool needs_attention(Status s) { return s != Status::kPass && s != Status::kSkip; }

std::string time_marks(std::span<const Record> records) {
  int throttled = 0, host_bound = 0, near_floor = 0;
  std::set<std::string> reasons;
  for (const Record& r : records) {
    if (!r.time) continue;
    throttled += r.time->clocks.throttled();
    reasons.insert(r.time->clocks.throttle.begin(), r.time->clocks.throttle.end());
    host_bound += r.time->host_bound > 0;
    near_floor += r.time->near_floor;
  }
  std::string text;
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(throttled, fmt::format("throttled ({})", fmt::join(reasons, ", ")));
  add(host_bound, "with host-bound samples");
  add(near_floor, "near the time of an empty launch");
  return text.empty() ? "" : "times that are marked: " + text;
}

std::string rows_text(const Verdict& v) {
  return v.rows == v.rows_total ? std::to_string(v.rows)
                                : std::to_string(v.rows) + "/" + std::to_string(v.rows_total);
}

}  // namespace attnbench
