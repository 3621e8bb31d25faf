#include "harness/session/time_stage.h"

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <optional>

#include "harness/cases/cost.h"
#include "harness/gigabytes.h"
#include "harness/session/check_stage.h"

namespace attnbench {
namespace {

/// A workload of its own for each turn of a rotating cache.
struct Copy {
  Copy(const WorkItem& work, KernelTable table, Device& device)
      : workload(device, *work.item), launcher(*work.kernel, table, device, workload) {}
  Workload workload;
  Launcher launcher;
};

/// Why this case cannot rotate through `copies` copies; nullopt if it can.
std::optional<SkipReason> cannot_rotate(const CaseCost& cost, int64_t copies, const Device& device) {
  const double needed = static_cast<double>(copies - 1) * cost.device_bytes;
  std::optional<SkipReason> why;
  if (copies > kMaxRotationCopies) {
    why = SkipReason{
        fmt::format("too small for --cache rotate: {} copies would be needed, {} are allowed; take cold",
                    copies, kMaxRotationCopies)};
  } else if (needed > static_cast<double>(device.free_memory())) {
    why = SkipReason{fmt::format("--cache rotate needs {} of {} memory for {} copies", gigabytes(needed),
                                 device.info().name, copies)};
  }
  return why;
}

/// Fills the roofline. A time below what the hardware allows becomes the record's status.
void judge_time(const CaseParams& params, const CaseCost& cost, Device& device, const SessionOptions& options,
                const Launcher& launcher, const Ceilings& ceilings, Record& record) {
  const double median = record.time->median_us;
  const auto impossible = [&] {
    record.roofline = roofline(cost, params, median, options.timing.cache, ceilings, device.info());
    if (const double flop = executed_flop(params, launcher.tile()); flop > 0) {
      record.roofline->executed_flop = flop;
    }
    return impossible_time(*record.roofline, median, ceilings, device.info());
  };
  bool wrong = impossible();
  if (wrong && options.wants_ceilings()) {
    device.remeasure_ceilings();  // updates what `ceilings` refers to
    wrong = impossible();
  }
  if (!wrong) return;
  const bool hardware = device.info().kind == DeviceKind::kCuda;
  record.end(
      Status::kInvalidTime,
      fmt::format("{:.2f} us is below the {:.2f} us that {}", median,
                  hardware ? record.roofline->limit_us : record.roofline->floor_us,
                  hardware ? "the hardware allows at its highest clocks" : "the measured ceilings allow"));
}

}  // namespace

void time_stage(const WorkItem& work, Device& device, const SessionOptions& options, Workload& workload,
                Launcher& launcher, uint64_t verified, Record& record) {
  const CaseParams& params = work.item->params;
  const CaseCost cost = cost_of(params);
  const CacheMode cache = options.timing.cache;
  const int64_t copies =
      cache == CacheMode::kRotate ? rotation_copies(cost.bytes, device.info().cache_bytes) : 1;
  if (const auto why = cannot_rotate(cost, copies, device)) return record.skip(*why);
  static const Ceilings kNone;
  const Ceilings& ceilings = options.wants_ceilings() ? device.ceilings(ceiling_dtypes()) : kNone;
  device.reset_cache_policy();
  workload.reset_outputs();
  std::deque<Copy> others;
  std::vector<std::function<void()>> launches = {[&] { launcher.launch(); }};
  for (int64_t i = 1; i < copies; ++i) {
    Copy& copy = others.emplace_back(work, options.table, device);
    copy.workload.reset_outputs();
    launches.emplace_back([&copy] { copy.launcher.launch(); });
  }
  record.time = time_launches(device, record_name(record), launches, options.timing);
  record.time->plan_us = launcher.plan_us();
  record.time->near_floor = ceilings.floor_us && record.time->median_us < 2 * *ceilings.floor_us;
  judge_time(params, cost, device, options, launcher, ceilings, record);
  // Before the last look at the outputs, which then also covers these launches.
  if (options.counters) {
    const auto as_timed = [&] {  // the cache is as a timed sample finds it
      if (cache == CacheMode::kHot) launches.front()();
      for (std::size_t i = 1; i < launches.size(); ++i) launches[i]();  // one turn of all copies
    };
    record.counters = device.count_launch(launches.front(), as_timed, cache);
  }
  if (options.check == CheckMode::kOff) return;
  Verdict after = check_after_timing(workload, launcher, verified);
  for (std::size_t i = 0; i < others.size() && after.pass; ++i) {
    after = check_after_timing(others[i].workload, others[i].launcher, verified);
  }
  if (after.pass) return;
  record.end(Status::kFail, "after timing: " + after.reason);
  Verdict& check = *record.check;
  check.fail(detector::kAfterTiming, record.reason);
  check.failed_by.insert(check.failed_by.end(), after.failed_by.begin(), after.failed_by.end());
  check.clues = after.clues;
}

}  // namespace attnbench
