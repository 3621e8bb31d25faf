#include "harness/session/check_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "harness/interop/dump.h"
#include "harness/judge/clues.h"
#include "harness/judge/rank_states.h"
#include "harness/judge/verify.h"
#include "harness/launch/numerics_bounds.h"
#include "harness/launch/python.h"
#include "harness/launch/refused_launch.h"
#include "harness/session/experiments.h"
#include "harness/session/invariants.h"
#include "harness/session/memory_check.h"

namespace attnbench {
namespace {

/// Clues take about as long as the comparison that found the error. They are omitted if that took longer than
/// this.
constexpr double kMostReferenceSeconds = 15;
/// The second launch of a wrong case is omitted after a first one that took longer than this.
constexpr double kMostLaunchSeconds = 5;

}  // namespace

std::vector<std::string> clues_or_none(const Case& item, const HostOutputs& outputs, const Launcher& launcher,
                                       const Verdict& v) {
  if (!item.params.does().forward() || v.reference_s > kMostReferenceSeconds) return {};
  try {
    std::vector<std::string> clues = clues_of({item, outputs, launcher.numerics(), v.rows_seed});
    if (item.params.path != Path::kDcp) return clues;
    if (const auto s = launcher.states()) {
      const std::vector<std::string> of_ranks = rank_clues(item, {s->layout, s->out, s->lse});
      clues.insert(clues.begin(), of_ranks.begin(), of_ranks.end());
    }
    return clues;
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
                       const SessionOptions& options, const OnPhase& begins, uint64_t& digest) {
  workload.reset_outputs();
  const auto begin = std::chrono::steady_clock::now();
  launcher.launch();
  device.synchronize();
  const double launch_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  begins({Phase::kCompare, launch_s});
  digest = workload.outputs_digest();
  const HostOutputs outputs = launcher.outputs(workload);
  const Check check(options.check, options.timing.order_seed);
  Verdict v = verify(workload, outputs, launcher.numerics(), check);
  v.outputs_digest = fmt::format("{:016x}", digest);
  const bool explain = !v.pass && !options.all_detectors;
  if (explain && work.item->params.does().forward()) {
    const std::vector<std::string> clues = clues_or_none(*work.item, outputs, launcher, v);
    if (!clues.empty()) std::erase_if(v.clues, [](const std::string& c) { return c.ends_with(kOfCompared); });
    v.clues.insert(v.clues.end(), clues.begin(), clues.end());
  }
  const auto only_bias = [](const std::string& detector) { return detector == detector::kBias; };
  if (explain && std::ranges::all_of(v.failed_by, only_bias) &&
      work.item->params.op != Op::kAttentionBackward)
    v.clues.push_back(fmt::format(
        "perhaps O has a factor of {:.4g}: a constant with few digits, or truncation", 1 + v.slope));
  if (!work.item->params.does().copies())
    v.declared = {launcher.numerics(), work.kernel->flags & kWaiverFlags};
  if (work.item->params.does().attends) {
    if (const auto less = lacks(options.required, launcher.numerics())) v.fail(detector::kNumerics, *less);
  }
  look_at_memory(workload, launcher, v);
  if (!options.dump.empty())
    dump_outputs(options.dump, workload, outputs, launcher.numerics(),
                 {options.check, v.rows_seed != 0 ? v.rows_seed : work.item->seed});
  if (explain && launch_s <= kMostLaunchSeconds) {
    begins({Phase::kCompare, launch_s, "", &v});
    tell_by_launches(work, workload, launcher, device, options, check, outputs, digest, v);
  }
  const bool invariants = options.invariants && work.index % options.invariants_every == 0;
  if (invariants && (v.pass || options.all_detectors)) {
    check_invariants(work, device, launcher, workload, outputs,
                     {check, options.repeats, options.capture_replay, options.table,
                      [&](const char* name) {
                        begins({Phase::kInvariant, launch_s, name});
                      }},
                     v);
  }
  return v;
}

namespace {

/// Offers the launch with tensors. Sets v.reason if a refused launch has changed memory.
LaunchAnswer offered(const WorkItem& work, Device& device, const OnPhase& begins, Verdict& v) {
  Workload workload(device, *work.item, layout_for(*work.kernel));
  workload.reset_outputs();
  device.synchronize();
  const uint64_t before = workload.outputs_digest();
  begins({Phase::kLaunch});
  LaunchAnswer answer = offer_launch(*work.kernel, device, workload);
  if (answer.status == KernelStatus::kOk) return answer;
  for (const auto& damage : {workload.guard_damage(), workload.input_damage()}) {
    if (damage) v.reason = "refused, but " + *damage;
  }
  if (workload.outputs_digest() != before) v.reason = "refused, but outputs were written";
  return answer;
}

}  // namespace

std::optional<Verdict> expected_refusal(const WorkItem& work, Device& device, CheckMode check,
                                        const OnPhase& begins, SkipReason& why_not) {
  Verdict v;
  v.pass = true;
  v.method = "refusal";
  const BadLaunch how = work.item->params.bad_launch;
  if (how != BadLaunch::kNone && is_python_kernel(*work.kernel)) {
    why_not = SkipReason{"a function in Python does not check its launches"};
    return std::nullopt;
  }
  std::string damage;
  LaunchAnswer answer = ask_supports(*work.kernel, device, *work.item);
  if (answer.status == KernelStatus::kOk) {
    if (const auto why = does_not_fit(*work.item, free_memory_of(device), check)) {
      why_not = *why;
      return std::nullopt;
    }
    answer = offered(work, device, begins, v);
    damage = v.reason;
  }
  if (answer.status == KernelStatus::kOk) {
    v.fail(
        detector::kNotRefused,
        fmt::format("the kernel takes a launch that it must refuse{}",
                    how == BadLaunch::kNone ? "" : fmt::format(" (bad_launch: {})", bad_launch_name(how))));
    return v;
  }
  v.refusal = {refusal_name(answer.status), answer.step, answer.message};
  if (!damage.empty()) v.fail(detector::kNotRefused, damage);
  if (answer.message.empty()) v.fail(detector::kNotRefused, answer.step + " refused without a message");
  return v;
}

Verdict check_after_timing(const Workload& workload, const Launcher& launcher, uint64_t verified,
                           uint64_t rows_seed) {
  Verdict v;
  v.pass = true;
  if (workload.outputs_digest() != verified)
    v = verify(workload, launcher.outputs(workload), launcher.numerics(), {CheckMode::kSampled, rows_seed});
  look_at_memory(workload, launcher, v);
  return v;
}

}  // namespace attnbench
