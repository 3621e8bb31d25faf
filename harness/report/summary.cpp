#include "harness/report/summary.h"

#include <fmt/format.h>

namespace attnbench {

Summary summarise(std::span<const Record> records) {
  Summary s;
  for (const Record& r : records) {
    switch (r.status) {
      case Status::kPass:
        ++s.passed;
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
  std::string text = fmt::format("{} passed, {} failed, {} skipped, {} error{}", s.passed, s.failed,
                                 s.skipped, s.errors, s.errors == 1 ? "" : "s");
  if (s.timeouts > 0) text += fmt::format(" ({} timeout{})", s.timeouts, s.timeouts == 1 ? "" : "s");
  if (s.invalid_times > 0) {
    text += fmt::format(", {} invalid time{}", s.invalid_times, s.invalid_times == 1 ? "" : "s");
  }
  return text;
}

bool needs_attention(Status s) { return s != Status::kPass && s != Status::kSkip; }

}  // namespace attnbench
