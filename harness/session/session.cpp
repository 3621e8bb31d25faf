#include "harness/session/session.h"

#include <fmt/format.h>

#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/cases/paths.h"
#include "harness/device/cpu_info.h"
#include "harness/error.h"
#include "harness/run/launcher.h"
#include "harness/session/check_stage.h"
#include "harness/session/time_stage.h"

namespace attnbench {
namespace {

/// Device memory beyond the tensors: metadata, guards, row owners, the cold-cache buffer.
constexpr double kMemorySlack = 64.0 * (1 << 20);

std::optional<SkipReason> lacks(double needed, int64_t available, const std::string& memory) {
  if (needed <= static_cast<double>(available)) return std::nullopt;
  return SkipReason{fmt::format("needs {:.2f} GiB of {} memory, {:.2f} GiB are free", needed / (1 << 30),
                                memory, static_cast<double>(available) / (1 << 30))};
}

/// Compares the memory that a case needs with what is free. The device holds the tensors. The host holds row
/// owners and the copies that a check needs: the outputs, or also caches and partial states. This is checked
/// first, because a host that runs out of memory later is an error.
std::optional<SkipReason> does_not_fit(const Case& item, const Device& device, CheckMode check) {
  const CaseCost cost = cost_of(item.params);
  const double owners = 8.0 * static_cast<double>(cost.total_k + cost.total_q);
  const bool copies_all = writes_cache(item.params) || merged_states(item.params) > 0;
  const double copies = check == CheckMode::kOff ? 0 : copies_all ? cost.device_bytes : cost.written;
  const double on_device = cost.device_bytes + owners + kMemorySlack;
  const bool one_memory = device.info().kind == DeviceKind::kCpu;
  auto why = lacks(on_device + (one_memory ? copies : 0), device.free_memory(), device.info().name);
  if (!why && !one_memory) why = lacks(copies + owners, cpu_free_memory(), "host");
  return why;
}

void run_stages(const WorkItem& work, Device& device, const SessionOptions& options, Record& record) {
  auto why_not = refusal(*work.kernel, options.table, device, *work.item);
  if (!why_not) why_not = does_not_fit(*work.item, device, options.check);
  if (why_not) return record.skip(*why_not);
  const DeviceRange whole(device, work.item->id.c_str());
  std::optional<DeviceRange> stage(std::in_place, device, "set-up");
  auto begin = std::chrono::steady_clock::now();
  const auto lap = [&begin] {
    const auto before = std::exchange(begin, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(begin - before).count();
  };
  Workload workload(device, *work.item);
  Launcher launcher(*work.kernel, options.table, device, workload);
  record.stages.setup_s = lap();
  stage.reset();  // end this range before the next begins: ranges form a stack
  stage.emplace(device, "verify");
  record.end(Status::kPass, "");
  uint64_t verified = 0;
  if (options.check != CheckMode::kOff) {
    record.check = checked_launch(work, workload, launcher, device, options, verified);
    if (!record.check->pass) return record.end(Status::kFail, record.check->reason);
  }
  record.stages.verify_s = lap();
  stage.reset();
  if (!options.time) return;
  stage.emplace(device, "time");
  time_stage(work, device, options, workload, launcher, verified, record);
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

Record no_kernel_record(const WorkItem& work, const std::string& device, const SessionOptions& options) {
  Record record = empty_record(work, device, options);
  record.skip({fmt::format("no kernel for {} on {}", op_name(work.item->params.op), device)});
  return record;
}

Record run_item(const WorkItem& work, Device& device, const SessionOptions& options, bool& device_lost,
                const std::function<void(const std::string&)>& before) {
  if (!work.kernel) return no_kernel_record(work, device.info().name, options);
  Record record = empty_record(work, device.info().name, options);
  if (before) before(record.repro);
  try {
    run_stages(work, device, options, record);
  } catch (const OutOfMemory& e) {
    record.skip({e.what()});
  } catch (const TooLarge& e) {
    record.skip({e.what()});
  } catch (const DeviceError& e) {
    record.end(Status::kError, e.what() + (e.lost ? crash_advice(work.item->params) : ""));
    device_lost = device_lost || e.lost;
  } catch (const std::bad_alloc&) {
    record.end(Status::kError, "not enough host memory");
  } catch (const std::exception& e) {
    record.end(Status::kError, e.what());
  }
  if (record.status == Status::kError && !device_lost) {
    // The kernel's own message may hide that it has poisoned the device context.
    try {
      device.synchronize();
    } catch (const DeviceError& e) {
      device_lost = e.lost;
    }
  }
  return record;
}

}  // namespace attnbench
