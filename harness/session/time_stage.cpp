#include "harness/session/time_stage.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/device/kernel_host.h"
#include "harness/gigabytes.h"
#include "harness/judge/sample.h"
#include "harness/launch/link_times.h"
#include "harness/session/timed_launches.h"
#include "harness/timing/roofline.h"

namespace attnbench {
namespace {

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

/// How often a case is timed before its times are held against a kernel: a busy machine disturbs them, too.
constexpr int kMostTries = 3;

/// A share of the speed of light above this says that the ceilings are too low: other processes may have held
/// cores, or a virtual machine waited for its host, which no count shows.
constexpr double kBeaten = 1.1;

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
  const bool beaten = record.roofline->sol && *record.roofline->sol > kBeaten;
  if ((wrong || beaten) && options.wants_ceilings()) {
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

void renew_rooflines(const Ceilings& ceilings, CacheMode cache, const DeviceInfo& device,
                     std::span<Record> records) {
  for (Record& r : records) {
    if (!r.time || !r.roofline || r.device != device.name) continue;
    const std::optional<double> executed = r.roofline->executed_flop;
    const CaseParams& params = r.item.params;
    r.roofline = roofline(cost_of(r.item), params, r.time->median_us, cache, ceilings, device);
    r.roofline->executed_flop = executed;
  }
}

void time_stage(const WorkItem& work, Device& device, const SessionOptions& options, BoundLaunch& bound,
                uint64_t verified, Record& record) {
  const CaseParams& params = work.item->params;
  const CaseCost cost = cost_of(*work.item);
  const CacheMode cache = options.timing.cache;
  const int64_t copies = cache == CacheMode::kRotate
                             ? rotation_copies(cost.bytes / params.devices(), device.info().cache_bytes)
                             : 1;
  if (const auto why = cannot_rotate(cost, copies, device)) return record.skip(*why);
  device.time_by(options.timing.clock);
  static const Ceilings kNone;
  const Ceilings& ceilings = options.wants_ceilings() ? device.ceilings(ceiling_dtypes()) : kNone;
  if (options.wants_ceilings() && params.devices() > 1)
    add_links(device, params.devices(), ceiling_dtypes());  // updates what `ceilings` refers to
  device.reset_cache_policy();
  bound.workload->reset_outputs();
  const uint64_t of_rows = record.check ? record.check->rows_seed : 0;  // the repro line has one seed
  const uint64_t seed = seed_or_drawn(options.timing.order_seed != 0 ? options.timing.order_seed : of_rows);
  try {
    TimedLaunches launches(work, device, options, bound, verified, copies, seed);
    std::optional<TimeResult> time;
    std::optional<WrongLaunch> doubt;
    for (int i = 0; i < kMostTries && (i == 0 || doubt); ++i) {
      time = time_samples(
          device, record_name(record), [&] { return launches.sample(); }, launches.warmups(), options.timing);
      doubt = launches.doubt();
    }
    KernelHost* host = device.kernel_host();
    if (doubt && (host == nullptr || !host->disturbed(device.info().threads))) throw *doubt;
    if (doubt) {  // nobody is accused, and nobody gains by it
      time->disturbed = static_cast<int>(time->samples_us.size());
      time->other_us = doubt->other_us;
    }
    record.time = std::move(time);
    record.time->copies = static_cast<int>(launches.size());
    const Launcher& launcher = *bound.launcher;
    record.time->plan_us = launcher.plan_us();
    if (launcher.exchange()) record.time->alone_us = launcher.exchange()->alone_us(ceilings.links);
    record.time->near_floor = ceilings.floor_us && record.time->median_us < 2 * *ceilings.floor_us;
    judge_time(params, cost, device, options, launcher, ceilings, record);
    if (options.counters) {
      launches.rest();
      const auto as_timed = [&] {  // the cache is as a timed sample finds it
        if (cache == CacheMode::kHot) launches.launch(0)();
        for (int64_t i = 1; i < copies; ++i) launches.launch(static_cast<std::size_t>(i))();  // one turn
      };
      record.counters = device.count_launch(launches.launch(0), as_timed, cache);
    }
    if (options.check == CheckMode::kOff) return;
    launches.look_back(record.counters && record.counters->launches > 0);
    record.time->watch = launches.summary();
  } catch (const WrongLaunch& e) {
    record.end(Status::kFail, fmt::format("{} (--seed-order {} repeats the inputs)", e.what(), seed));
    if (options.timing.order_seed == 0 && of_rows == 0) record.repro += fmt::format(" --seed-order {}", seed);
    Verdict& check = *record.check;
    check.pass = false;
    check.reason = record.reason;
    check.failed_by.insert(check.failed_by.end(), e.failed_by.begin(), e.failed_by.end());
    check.clues = e.clues;
  }
}

}  // namespace attnbench
