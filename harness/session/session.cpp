#include "harness/session/session.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "harness/error.h"
#include "harness/interop/dump.h"
#include "harness/judge/made_up.h"
#include "harness/launch/launcher.h"
#include "harness/session/check_stage.h"
#include "harness/session/invariants.h"
#include "harness/session/memory_check.h"
#include "harness/session/time_stage.h"

namespace attnbench {
namespace {

void take_verdict(Record& record, const Verdict& v, const SessionOptions& options) {
  record.check = v;
  if (options.timing.order_seed == 0 && v.rows_seed != 0)
    record.repro += fmt::format(" --seed-order {}", v.rows_seed);
}

/// A case that the kernel must refuse. Nothing is timed.
void refusal_stage(const WorkItem& work, Device& device, const SessionOptions& options, Record& record,
                   const OnPhase& begins) {
  if (const auto why = other_abi(*work.kernel)) return record.skip(*why);
  const auto begin = std::chrono::steady_clock::now();
  SkipReason why_not;
  record.check = expected_refusal(work, device, options.check, begins, why_not);
  record.stages.verify_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!record.check) return record.skip(why_not);
  record.end(record.check->pass ? Status::kPass : Status::kFail, record.check->reason);
}

void run_stages(const WorkItem& work, Device& device, const SessionOptions& options, Record& record,
                const OnPhase& begins) {
  if (work.item->params.expect_refused) return refusal_stage(work, device, options, record, begins);
  auto why_not = refusal(*work.kernel, options.table, device, *work.item);
  if (!why_not) why_not = does_not_fit(*work.item, free_memory_of(device), options.check);
  if (why_not) return record.skip(*why_not);
  const DeviceRange whole(device, work.item->id.c_str());
  std::optional<DeviceRange> stage(std::in_place, device, "set-up");
  auto begin = std::chrono::steady_clock::now();
  const auto lap = [&begin] {
    const auto before = std::exchange(begin, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(begin - before).count();
  };
  BoundLaunch bound{std::make_unique<Workload>(device, *work.item, layout_for(*work.kernel), Values::kLater),
                    nullptr};
  Workload& workload = *bound.workload;
  try {
    bound.launcher = std::make_unique<Launcher>(*work.kernel, options.table, device, workload);
  } catch (const PlanRefused& e) {
    return record.skip({e.what()});
  }
  Launcher& launcher = *bound.launcher;
  workload.fill_values();
  record.stages.setup_s = lap();
  stage.reset();  // end this range before the next begins: ranges form a stack
  stage.emplace(device, "verify");
  record.end(Status::kPass, "");
  if (!options.dump.empty())
    dump_inputs(options.dump, workload, launcher.numerics(), {options.check, work.item->seed});
  begins({Phase::kLaunch});
  uint64_t verified = 0;
  if (options.check != CheckMode::kOff) {
    take_verdict(record, checked_launch(work, workload, launcher, device, options, begins, verified),
                 options);
    record.end_checked([&] {
      return undecided_reason(workload, launcher.outputs(workload), launcher.numerics(), options.check,
                              *record.check);
    });
    if (record.status != Status::kPass) return;
  }
  record.stages.verify_s = lap();
  stage.reset();
  if (!options.time) return;
  stage.emplace(device, "time");
  begins({Phase::kTiming});
  time_stage(work, device, options, bound, verified, record);
  record.stages.time_s = lap();
}

}  // namespace

Record empty_record(const WorkItem& work, const std::string& device, const SessionOptions& options) {
  Record record;
  record.item = *work.item;
  record.index = work.index;
  record.device = device;
  record.kernel = work.kernel ? work.kernel->name : "";
  record.repro = repro_line(work, device, options);
  record.status = Status::kSkip;
  return record;
}

Record wrong_record(const WorkItem& work, const std::string& device, const SessionOptions& options,
                    const Verdict& v) {
  Record record = empty_record(work, device, options);
  take_verdict(record, v, options);
  record.end(Status::kFail, v.reason);
  return record;
}

Record no_kernel_record(const WorkItem& work, const std::string& device, const SessionOptions& options) {
  Record record = empty_record(work, device, options);
  record.skip(no_kernel(work.item->params.op, device, !options.kernels.empty()));
  return record;
}

Record run_item(const WorkItem& work, Device& device, const SessionOptions& options, bool& device_lost,
                const std::function<void(const std::string&)>& before, const OnPhase& begins) {
  if (!work.kernel) return no_kernel_record(work, device.info().name, options);
  Record record = empty_record(work, device.info().name, options);
  if (before) before(record.repro);
  Reached last;
  const auto during = [&] {
    return last.phase == Phase::kInvariant ? "," + during_invariant(last.invariant) : "";
  };
  try {
    run_stages(work, device, options, record, [&](const Reached& reached) {
      last = reached;
      if (begins) begins(reached);
    });
  } catch (const OutOfMemory& e) {
    record.skip({e.what()});
  } catch (const MemoryFault& e) {
    if (!record.check) record.check.emplace().method = "none";
    const std::string_view text = e.what();
    const bool of_pages = text.find(" of k in ") != text.npos || text.find(" of v in ") != text.npos;
    record.check->fail(
        e.wrote_to_input ? detector::kInputDigest : detector::kGuard,
        e.what() + during() + (of_pages && !e.wrote_to_input ? crash_advice(work.item->params, last) : ""));
    record.end(Status::kFail, record.check->reason);
  } catch (const TooLarge& e) {
    record.skip({e.what()});
  } catch (const DeviceError& e) {
    record.end(Status::kError, e.what() + during() + (e.lost ? crash_advice(work.item->params, last) : ""));
    device_lost = device_lost || e.lost;
  } catch (const std::bad_alloc&) {
    record.end(Status::kError, "not enough host memory");
  } catch (const std::exception& e) {
    record.end(Status::kError, e.what() + during());
  }
  if ((record.status == Status::kError || record.status == Status::kFail) && !device_lost) {
    // The kernel's own message, or a wrong result before a second launch, may hide that the kernel has poisoned
    // the device context.
    try {
      device.synchronize();
    } catch (const DeviceError& e) {
      device_lost = e.lost;
    }
  }
  return record;
}

}  // namespace attnbench
