#include "harness/session/session.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/error.h"
#include "harness/record/text.h"
#include "harness/session/invariants.h"
#include "harness/session/time_stage.h"
#include "harness/verify/clues.h"

namespace attnbench {
namespace {

/// Device memory beyond the tensors: metadata, guards, row owners, the cold-cache buffer.
constexpr double kMemorySlack = 64.0 * (1 << 20);
/// Clues take about as long as the comparison that found the output wrong; they are left out beyond this.
constexpr double kMostReferenceSeconds = 15;

std::optional<std::string> does_not_fit(const Case& item, const Device& device) {
  const CaseCost cost = cost_of(item.params);
  const double needed =
      cost.device_bytes + 8.0 * static_cast<double>(cost.total_k + cost.total_q) + kMemorySlack;
  const double available = static_cast<double>(device.free_memory());
  if (needed <= available) return std::nullopt;
  return fmt::format("needs {:.2f} GiB of {} memory, {:.2f} GiB are free", needed / (1 << 30),
                     device.info().name, available / (1 << 30));
}

/// They are an aid: what they cost or lack must not make an error or a timeout of a wrong result.
std::vector<std::string> clues_or_none(const Case& item, const HostOutputs& outputs, const Launcher& launcher,
                                       const Verdict& v) {
  if (item.params.op != Op::kAttention || v.reference_s > kMostReferenceSeconds) return {};
  try {
    return clues_of({item, outputs, launcher.numerics()});
  } catch (const std::exception&) {  // such as no memory for the rows
    return {};
  }
}

/// One checked launch: outputs poisoned before, compared and guards looked at after. Then its invariants,
/// where they are asked for. `digest`: of the outputs that were judged.
Verdict checked_launch(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                       const SessionOptions& options, uint64_t& digest) {
  workload.reset_outputs();
  launcher.launch();
  device.synchronize();
  digest = workload.outputs_digest();
  const HostOutputs outputs = launcher.outputs(workload);
  Verdict v = verify(workload, outputs, launcher.numerics(), options.check);
  if (!v.pass && !options.all_detectors) v.clues = clues_or_none(*work.item, outputs, launcher, v);
  look_at_memory(workload, launcher, v);
  const bool invariants = options.invariants && work.index % options.invariants_every == 0;
  if (invariants && (v.pass || options.all_detectors)) {
    check_invariants(*work.item, *work.kernel, device, launcher, workload, outputs,
                     {options.check, options.repeats, options.capture_replay}, v);
  }
  return v;
}

void run_stages(const WorkItem& work, Device& device, const SessionOptions& options, Record& record) {
  if (auto why = refusal(*work.kernel, device, *work.item)) {
    record.reason = *why;
    return;  // a skip
  }
  if (auto why = does_not_fit(*work.item, device)) {
    record.reason = *why;
    return;
  }
  const DeviceRange whole(device, work.item->id.c_str());
  std::optional<DeviceRange> stage(std::in_place, device, "set-up");
  auto begin = std::chrono::steady_clock::now();
  const auto lap = [&begin] {
    const auto before = std::exchange(begin, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(begin - before).count();
  };
  Workload workload(device, *work.item);
  Launcher launcher(*work.kernel, device, workload);
  record.stages.setup_s = lap();
  stage.reset();  // before the next one begins: ranges end in the order of a stack
  stage.emplace(device, "verify");
  uint64_t verified = 0;
  if (options.check != CheckMode::kOff) {
    record.check = checked_launch(work, workload, launcher, device, options, verified);
    if (!record.check->pass) {
      record.status = Status::kFail;
      record.reason = record.check->reason;
      return;
    }
  }
  record.stages.verify_s = lap();
  stage.reset();
  record.status = Status::kPass;
  if (!options.time) return;

  stage.emplace(device, "time");
  time_stage(work, device, options, workload, launcher, verified, record);
  record.stages.time_s = lap();
}

}  // namespace

std::vector<WorkItem> plan_session(const std::vector<Case>& cases, KernelTable table, DeviceKind device,
                                   const std::vector<std::string>& kernel_names) {
  std::vector<WorkItem> out;
  for (const Case& c : cases) {
    const auto kernels = select_kernels(table, c.params.op, device, kernel_names);
    for (const Kernel* k : kernels) out.push_back({&c, k, static_cast<int64_t>(out.size())});
    if (kernels.empty()) out.push_back({&c, nullptr, static_cast<int64_t>(out.size())});
  }
  return out;
}

std::string repro_line(const WorkItem& work, const std::string& device, const SessionOptions& options) {
  std::string line = fmt::format("attnbench run --case '{}' --seed {} --device {}",
                                 case_yaml(work.item->params), work.item->seed, device);
  if (work.kernel) line += std::string(" --kernel ") + work.kernel->name;
  const auto plugin = options.plugin_of.find(work.kernel);
  if (plugin != options.plugin_of.end()) line += " --plugin " + shell_word(plugin->second);
  for (const std::string& arg : options.plain_args) line += " " + arg;
  return line;
}

std::string in_hand_text(const WorkItem& work, const SessionOptions& options) {
  std::string text = "case " + work.item->id;
  if (work.kernel) text += std::string(", kernel ") + work.kernel->name;
  const auto plugin = options.plugin_of.find(work.kernel);
  return plugin == options.plugin_of.end() ? text : text + " of " + plugin->second;
}

const std::vector<DType>& ceiling_dtypes() {
  static const std::vector<DType> list = {DType::kBf16, DType::kFp16, DType::kFp32};
  return list;
}

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
  record.reason =
      fmt::format("no kernel{} for {} on {}", options.kernels.empty() ? "" : " of the chosen names",
                  op_name(work.item->params.op), device);
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
    record.status = Status::kSkip;
    record.reason = e.what();
  } catch (const TooLarge& e) {
    record.status = Status::kSkip;
    record.reason = e.what();
  } catch (const DeviceError& e) {
    record.status = Status::kError;
    record.reason = e.what();
    device_lost = device_lost || e.lost;
  } catch (const std::bad_alloc&) {
    record.status = Status::kError;
    record.reason = "not enough host memory";
  } catch (const std::exception& e) {
    record.status = Status::kError;
    record.reason = e.what();
  }
  if (record.status == Status::kError && !device_lost) {
    // A kernel's own message may hide that it has poisoned the device context.
    try {
      device.synchronize();
    } catch (const DeviceError& e) {
      device_lost = e.lost;
    }
  }
  return record;
}

}  // namespace attnbench
