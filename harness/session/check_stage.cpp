#include "harness/session/check_stage.h"

#include <fmt/format.h>

#include <optional>

#include "harness/session/invariants.h"
#include "harness/verify/clues.h"
#include "harness/verify/verify.h"

namespace attnbench {
namespace {

/// Clues take about as long as the comparison that found the error. They are omitted if that took longer than
/// this.
constexpr double kMostReferenceSeconds = 15;

}  // namespace

std::vector<std::string> clues_or_none(const Case& item, const HostOutputs& outputs, const Launcher& launcher,
                                       const Verdict& v) {
  if (item.params.op != Op::kAttention || v.reference_s > kMostReferenceSeconds) return {};
  try {
    return clues_of({item, outputs, launcher.numerics()});
  } catch (const std::exception&) {  // for example, no memory for the rows
    return {};
  }
}

void look_at_memory(const Workload& workload, const Launcher& launcher, Verdict& v) {
  std::vector<std::string> more;
  const auto look = [&](const char* detector, const std::optional<std::string>& damage) {
    if (!damage) return;
    if (!v.pass) more.push_back("also: " + *damage);
    v.fail(detector, *damage);
  };
  look(detector::kGuard, workload.guard_damage());
  look(detector::kGuard, launcher.memory_damage());
  look(detector::kInputDigest, workload.input_damage());
  v.clues.insert(v.clues.begin(), more.begin(), more.end());
}

Verdict checked_launch(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                       const SessionOptions& options, uint64_t& digest) {
  workload.reset_outputs();
  launcher.launch();
  device.synchronize();
  digest = workload.outputs_digest();
  const HostOutputs outputs = launcher.outputs(workload);
  Verdict v = verify(workload, outputs, launcher.numerics(), options.check);
  v.outputs_digest = fmt::format("{:016x}", digest);
  if (!v.pass && !options.all_detectors) v.clues = clues_or_none(*work.item, outputs, launcher, v);
  if (work.item->params.op == Op::kAttention) {
    const Numerics declared = launcher.numerics();
    const uint32_t flags = work.kernel->flags;
    v.numerics = {declared.p_type, declared.acc_type, (flags & kNoLse) != 0, (flags & kFinitePadding) != 0};
    if (const auto less = lacks(options.required, *v.numerics)) v.fail(detector::kNumerics, *less);
  }
  look_at_memory(workload, launcher, v);
  const bool invariants = options.invariants && work.index % options.invariants_every == 0;
  if (invariants && (v.pass || options.all_detectors)) {
    check_invariants(work, device, launcher, workload, outputs,
                     {options.check, options.repeats, options.capture_replay, options.table}, v);
  }
  return v;
}

Verdict check_after_timing(const Workload& workload, const Launcher& launcher, uint64_t verified) {
  Verdict v;
  v.pass = true;
  if (workload.outputs_digest() != verified)
    v = verify(workload, launcher.outputs(workload), launcher.numerics(), CheckMode::kSampled);
  look_at_memory(workload, launcher, v);
  return v;
}

}  // namespace attnbench
