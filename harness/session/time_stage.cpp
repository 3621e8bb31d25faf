#include "harness/session/time_stage.h"

#include <fmt/format.h>

#include <deque>

#include "harness/cases/cost.h"

namespace attnbench {
namespace {

/// A workload of its own for each turn of a rotating cache.
struct Copy {
  Copy(Device& device, const WorkItem& work)
      : workload(device, *work.item), launcher(*work.kernel, device, workload) {}
  Workload workload;
  Launcher launcher;
};

/// Why this case cannot be rotated; nullopt where it can.
std::optional<std::string> cannot_rotate(const CaseCost& cost, int64_t copies, const Device& device) {
  if (copies > kMaxRotationCopies) {
    return fmt::format("too small for --cache rotate: {} copies would be needed, {} are allowed; take cold",
                       copies, kMaxRotationCopies);
  }
  const double needed = static_cast<double>(copies - 1) * cost.device_bytes;
  if (needed > static_cast<double>(device.free_memory())) {
    return fmt::format("--cache rotate needs {:.2f} GiB of {} memory for {} copies", needed / (1 << 30),
                       device.info().name, copies);
  }
  return std::nullopt;
}

/// Counts the first of `launches` with the cache as a timed sample finds it.
CounterReading count_launches(Device& device, const std::vector<std::function<void()>>& launches,
                              CacheMode cache) {
  const auto prepare = [&] {
    if (cache == CacheMode::kHot) launches.front()();
    for (std::size_t i = 1; i < launches.size(); ++i) launches[i]();  // a turn of all copies
  };
  return device.count_launch(launches.front(), prepare, cache);
}

/// After timing, the buffers that were timed: their last contents must be right too. The same bits as the
/// verified launch need no second comparison; other bits are judged afresh.
Verdict check_after_timing(const Workload& workload, const Launcher& launcher, uint64_t verified) {
  Verdict v;
  v.pass = true;
  if (workload.outputs_digest() != verified)
    v = verify(workload, launcher.outputs(workload), launcher.numerics(), CheckMode::kSampled);
  look_at_memory(workload, launcher, v);
  return v;
}

}  // namespace

void look_at_memory(const Workload& workload, const Launcher& launcher, Verdict& v) {
  if (auto damage = workload.guard_damage()) v.fail(detector::kGuard, *damage);
  if (auto damage = launcher.memory_damage()) v.fail(detector::kGuard, *damage);
  if (auto damage = workload.input_damage()) v.fail(detector::kInputDigest, *damage);
}

void time_stage(const WorkItem& work, Device& device, const SessionOptions& options, Workload& workload,
                Launcher& launcher, uint64_t verified, Record& record) {
  const CaseParams& params = work.item->params;
  const CaseCost cost = cost_of(params);
  const CacheMode cache = options.timing.cache;
  int64_t copies = 1;
  if (cache == CacheMode::kRotate) {
    copies = rotation_copies(cost.bytes, device.info().cache_bytes);
    if (auto why = cannot_rotate(cost, copies, device)) {
      record.status = Status::kSkip;
      record.reason = *why;
      return;
    }
  }
  static const Ceilings kNone;
  const Ceilings& ceilings = options.wants_ceilings() ? device.ceilings(ceiling_dtypes()) : kNone;
  device.reset_cache_policy();
  workload.reset_outputs();
  std::deque<Copy> others;
  std::vector<std::function<void()>> launches = {[&] { launcher.launch(); }};
  for (int64_t i = 1; i < copies; ++i) {
    Copy& copy = others.emplace_back(device, work);
    copy.workload.reset_outputs();
    launches.emplace_back([&copy] { copy.launcher.launch(); });
  }
  record.time = time_launches(device, record_name(record), launches, options.timing);
  record.time->plan_us = launcher.plan_us();
  record.time->near_floor = ceilings.floor_us && record.time->median_us < 2 * *ceilings.floor_us;

  const auto judge_time = [&] {
    record.roofline = roofline(cost, params, record.time->median_us, cache, ceilings, device.info());
    if (const double flop = executed_flop(params, launcher.tile()); flop > 0) {
      record.roofline->executed_flop = flop;
    }
    return impossible_time(*record.roofline, record.time->median_us, ceilings, device.info());
  };
  bool impossible = judge_time();
  if (impossible && options.wants_ceilings()) {
    device.remeasure_ceilings();  // `ceilings` refers to the device's own
    impossible = judge_time();
  }
  if (impossible) {
    const Roofline& r = *record.roofline;
    const bool hardware = device.info().kind == DeviceKind::kCuda;
    record.status = Status::kInvalidTime;
    record.reason =
        fmt::format("{:.2f} us is below the {:.2f} us that {}", record.time->median_us,
                    hardware ? r.limit_us : r.floor_us,
                    hardware ? "the hardware allows at its highest clocks" : "the measured ceilings allow");
  }
  // Before the last look at the outputs, which then sees what these launches left too.
  if (options.counters) record.counters = count_launches(device, launches, cache);
  if (options.check == CheckMode::kOff) return;
  Verdict after = check_after_timing(workload, launcher, verified);
  for (std::size_t i = 0; i < others.size() && after.pass; ++i) {
    after = check_after_timing(others[i].workload, others[i].launcher, verified);
  }
  if (after.pass) return;
  record.status = Status::kFail;
  record.reason = "after timing: " + after.reason;
  record.check->fail(detector::kAfterTiming, record.reason);
  record.check->failed_by.insert(record.check->failed_by.end(), after.failed_by.begin(),
                                 after.failed_by.end());
}

}  // namespace attnbench
