#include "harness/selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/launch/last_words.h"
#include "harness/ops/attention_backward/faults_host.h"
#include "harness/ops/tensors_ops.h"
#include "harness/results/text.h"
#include "harness/selftest/fault.h"
#include "harness/session/estimate.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

using Outcome = FaultResult::Outcome;

constexpr const char* kNeedsMore = "the case needs more than the kernel has: ";

SessionOptions all_checks(int repeats) {
  SessionOptions o;
  o.check = CheckMode::kFull;
  o.invariants = true;
  o.repeats = repeats;
  o.capture_replay = false;  // a tampered launch reads and writes memory from the host
  o.all_detectors = true;
  o.time = false;
  o.plain_args = {"--check full,invariants", "--no-time"};
  return o;
}

/// `sweep`: the checks of a sweep's case, of which nothing is asked but whether it passes.
Record run(const Case& c, const Kernel& kernel, Device& device, int repeats,
           const std::optional<SweepChecks>& sweep = {}) {
  bool lost = false;
  SessionOptions o = all_checks(repeats);
  if (sweep) {
    o.check = sweep->mode;
    o.invariants = sweep->invariants;
    o.repeats = 2;
    o.all_detectors = false;
  }
  Record r = run_item({&c, &kernel, 0, /*experiments=*/!sweep}, device, o, lost);
  if (lost) throw DeviceError(fmt::format("{} is unusable: {}", device.info().name, r.reason), true);
  return r;
}

/// The first launch of a fault, and the verdicts of the two rules of thumb on it.
struct Seen {
  std::unique_ptr<HostView> view;
  OutView out;
  std::optional<bool> allclose, twice_naive;
};

bool close(double got, double right) { return std::abs(got - right) <= 1e-2 + 1e-2 * std::abs(right); }

void judge_by_thumb(Seen& seen) {
  const std::vector<HostRow> rows = seen.view->rows();
  const std::vector<RowAnswer> right = answers(seen.view->problem(), *seen.view);
  const std::vector<std::vector<double>> by_steps = naive(*seen.view);
  bool all_close = true;
  double worst = 0;
  double worst_naive = 0;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    for (std::size_t c = 0; c < right[n].o.size(); ++c) {
      const double o = right[n].o[c];
      const double got = static_cast<double>(seen.out.o(rows[n].token, rows[n].head, static_cast<int>(c)));
      all_close = all_close && close(got, o);
      worst = std::isnan(got) ? INFINITY : std::max(worst, std::abs(got - o));
      worst_naive = std::max(worst_naive, std::abs(by_steps[n][c] - o));
    }
  }
  seen.allclose = all_close;
  seen.twice_naive = worst <= 2 * worst_naive;
}

/// Features that the naive computation (host_view.h) lacks.
constexpr uint64_t kBeyondHost = kAppend | kE4m3Q | kInt8Q | kInt8K | kInt8V | kHeadDimV | kVIsK | kProbs |
                                 kDropout | kLseBase2 | kLseTokenMajor | kVChannelScales | kAppendQuantised |
                                 kE4m3Out | kRotaryCached | kBlockScales | kKTokenScales | kVTokenScales;

/// Compares a fault's outputs with the right kernel's. Copies have no rounding error, so for kv_append and kv_move
/// twice_naive requires equal bits.
KernelStatus judge_by_good(Tamper& t, const OpParams& op, const std::function<KernelStatus()>& wrong,
                           Seen& seen) {
  const std::vector<Written> outputs = tensors_ops(op.op).written(op);
  const auto read = [&] {
    std::vector<std::vector<unsigned char>> all;
    for (const Written& w : outputs) all.push_back(t.read<unsigned char>(w.at, w.bytes()));
    return all;
  };
  const auto before = read();
  if (const KernelStatus s = t.launch(op); s != KernelStatus::kOk) return s;
  const auto right = read();
  for (std::size_t i = 0; i < outputs.size(); ++i) t.write(outputs[i].at, before[i]);
  const KernelStatus status = wrong();
  const auto got = read();
  bool all_close = true;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (int64_t e = 0; outputs[i].judged_by_thumb && e < outputs[i].elements; ++e) {
      const double a = static_cast<double>(load_float(outputs[i].type, got[i].data(), e));
      const double b = static_cast<double>(load_float(outputs[i].type, right[i].data(), e));
      all_close = all_close && (close(a, b) || (std::isnan(a) && std::isnan(b)));
    }
  }
  seen.allclose = all_close;
  if (traits_of(op.op).copies()) seen.twice_naive = got == right;
  return status;
}

/// The bits that each launch of a case leaves, launch by launch. Empty if the run does not pass.
std::vector<std::vector<std::vector<unsigned char>>> bits_of_launches(const Case& c, const Kernel& kernel,
                                                                      Device& device, int repeats,
                                                                      const Tamper::Fault& launch) {
  std::vector<std::vector<std::vector<unsigned char>>> bits;
  Tamper tamper(kernel, device);
  const Kernel& changed = tamper.armed([&](Tamper& t, const OpParams& op) {
    const KernelStatus status = launch(t, op);
    bits.emplace_back();
    for (const Written& w : tensors_ops(op.op).written(op))
      bits.back().push_back(t.read<unsigned char>(w.at, w.bytes()));
    return status;
  });
  if (run(c, changed, device, repeats).status != Status::kPass) bits.clear();
  return bits;
}

/// Whether a fault that no check caught changes nothing: each launch of the case, those of the invariants
/// included, leaves the same bits as without it. Then there is nothing to catch.
bool has_no_effect(const Case& c, const Kernel& kernel, Device& device, const Fault& fault) {
  const auto wrong = bits_of_launches(c, kernel, device, fault.repeats, fault.launch);
  const auto right = bits_of_launches(c, kernel, device, fault.repeats,
                                      [](Tamper& t, const OpParams& op) { return t.launch(op); });
  return !wrong.empty() && wrong == right;
}

/// Gets the id of each case of a step before it runs.
using Follower = std::function<void(const std::string& id)>;

FaultResult run_fault(const FaultClass& group, const Fault& fault, const SelftestStep& step, Device& device,
                      const Follower& before) {
  const Kernel& kernel = *step.kernel;
  const bool own = step.item.empty();
  FaultResult result;
  result.name = fault.name;
  result.fault_class = group.name;
  result.what = fault.what;
  result.kernel = kernel.name;
  if ((fault.breaks & ~kernel.flags) != 0) {
    result.reason = fmt::format("{} does not promise what this fault breaks", kernel.name);
    return result;
  }
  if ((fault.shows_with & ~kernel.features) != 0) {
    result.reason = fmt::format("{} refuses the launches that would show this fault", kernel.name);
    return result;
  }
  for (const std::string& yaml : own ? fault.cases : std::vector{step.item}) {
    const Case c = fault_case(!own || fault.about_types() ? yaml : in_type_of(kernel, yaml), step.seed);
    if (c.params.op != kernel.op) continue;
    result.item = c.id;
    before(c.id);
    Seen seen;
    Tamper tamper(kernel, device);
    const Kernel& wrong = tamper.armed([&](Tamper& t, const OpParams& op) {
      if (!own || t.launches() > 1 || c.params.expect_refused) return fault.launch(t, op);
      if (!traits_of(op.op).forward() || (op.attention.features & kBeyondHost)) {
        return judge_by_good(
            t, op, [&] { return fault.launch(t, op); }, seen);
      }
      seen.view = std::make_unique<HostView>(t, op.attention);
      const KernelStatus status = fault.launch(t, op);
      seen.out = t.output(seen.view->p());
      judge_by_thumb(seen);
      return status;
    });
    if (fault.supports_all) tamper.take_all();
    const Record r = run(c, wrong, device, fault.repeats, step.sweep_checks);
    if (r.status == Status::kSkip) {
      if (result.reason.empty() || result.reason.starts_with(kNeedsMore))
        result.reason = kNeedsMore + r.reason;
      continue;
    }
    if (r.status == Status::kPass && c.params.expect_refused && tamper.launches() == 0) {
      result.reason = "the kernel refuses the case before it is launched";
      continue;
    }
    if (!tamper.refusal().empty()) {
      result.reason =
          "cannot be tried: this fault is a launch with other parameters, which the kernel refuses: " +
          tamper.refusal();
      continue;
    }
    if (own && r.status == Status::kPass && has_no_effect(c, kernel, device, fault)) {
      result.reason = "no effect: the kernel gives the same bits with this mistake, in each launch";
      continue;
    }
    result.reason = r.reason;
    result.allclose = seen.allclose;
    result.twice_naive = seen.twice_naive;
    if (r.check) result.caught_by = r.check->failed_by;
    // A launch that fails by the fault alone, as where Python raises, shows it to everybody.
    const bool raised = r.status == Status::kError && r.reason.find(": launch failed: ") != r.reason.npos;
    if (raised) result.caught_by = {"error"};
    result.outcome = r.status == Status::kFail || raised ? Outcome::kCaught
                     : r.status == Status::kPass         ? Outcome::kEscaped
                                                         : Outcome::kError;
    return result;
  }
  result.outcome = Outcome::kNotApplicable;
  return result;
}

void count_clean(const Record& r, const std::string& beside, CleanResult& clean) {
  if (r.status == Status::kSkip) {
    ++clean.skipped;
    return;
  }
  ++clean.runs;
  if (r.status == Status::kPass) return;
  clean.failures.push_back({r.kernel, r.reason, r.repro, beside});
  clean.errors += r.status == Status::kError;
}

/// A right launch with inputs and metadata copied to other memory, as faults do it: the copies alone must not
/// be caught.
KernelStatus copied(Tamper& t, const OpParams& op) {
  AttentionParams p = op.attention;
  const HostView view(t, p);
  const auto moved = [&](auto& pointer, const auto& host) {
    if (pointer != nullptr) pointer = t.put(host);
  };
  moved(p.cu_seqlens_q, view.cu_q);
  moved(p.cu_seqlens_k, view.cu_k);
  moved(p.seqused_q, view.used_q);
  moved(p.seqused_k, view.used);
  moved(p.block_table, view.table);
  moved(p.alibi_slopes, view.slopes);
  moved(p.sinks, view.sinks);
  moved(p.topk_indices, view.lists);
  moved(p.topk_length, view.list_lengths);
  moved(p.custom_mask, view.mask_bytes);
  moved(p.mask_indptr, view.mask_indptr);
  moved(p.k, view.k);
  moved(p.v, view.v);
  return t.launch(p);
}

CleanResult run_clean(const SelftestStep& step, Device& device, const Follower& before) {
  CleanResult clean;
  const Kernel& kernel = *step.kernel;
  const Case c = fault_case(step.item, step.seed);
  before(c.id);
  count_clean(run(c, kernel, device, 2), "", clean);
  if (!clean.failures.empty()) return clean;  // the others would fail alike
  if (step.seed == 1 && c.params.does().gradients) {
    Tamper tamper(kernel, device);
    count_clean(run(c, tamper.armed(with_backward_rule({})), device, 2),
                "its gradients recomputed on the host", clean);
  }
  if (step.seed > 1 || !c.params.does().forward() || c.params.expect_refused) return clean;
  if (Workload::shape_params(c).attention.features & kBeyondHost) return clean;
  Tamper tamper(kernel, device);
  count_clean(run(c, tamper.armed(copied), device, 2), "its inputs copied to other memory", clean);
  count_clean(run(c, tamper.armed(with_answers(right_problem)), device, 2),
              "its output recomputed on the host", clean);
  return clean;
}

std::string full_name(const FaultClass& group, const Fault& fault) { return group.name + "/" + fault.name; }

std::pair<const FaultClass*, const Fault*> find_fault(const std::string& name) {
  static const std::vector<FaultClass> groups = all_faults();
  for (const FaultClass& group : groups) {
    for (const Fault& fault : group.faults) {
      if (full_name(group, fault) == name) return {&group, &fault};
    }
  }
  throw std::logic_error("no fault has the name " + name);
}

/// The cases of a sweep to which a fault of `own` may be put: those with most of its keys first, then the cheapest.
std::vector<const Case*> likely_first(const std::vector<Case>& sweep, const Case& own) {
  const auto settings = [](const Case& c) {
    std::set<std::string> words;
    std::istringstream text(case_yaml(c.params));
    for (std::string word; std::getline(text, word, ',');)
      words.insert({word, word.substr(0, word.find(':'))});
    return words;
  };
  const std::set<std::string> wanted = settings(own);
  std::vector<std::pair<double, const Case*>> ranked;
  constexpr double kMostBytes =
      1 << 30;  // faults copy whole tensors to the host, holes of sparse pools included
  for (const Case& c : sweep) {
    if (c.params.op != own.params.op || c.params.expect_refused != own.params.expect_refused) continue;
    if (cost_of(c).device_bytes > kMostBytes) continue;
    const std::set<std::string> words = settings(c);
    const auto common = std::ranges::count_if(wanted, [&](const auto& w) { return words.contains(w); });
    constexpr double kLongest = 1e6;  // seconds
    ranked.emplace_back(estimated_seconds(c.params, {}, CheckMode::kSampled, true).check.middle() -
                            kLongest * static_cast<double>(common),
                        &c);
  }
  std::ranges::stable_sort(ranked, {}, &std::pair<double, const Case*>::first);
  std::vector<const Case*> cases;
  for (const auto& [rank, c] : ranked) cases.push_back(c);
  return cases;
}

void add(const CleanResult& more, CleanResult& clean) {
  clean.runs += more.runs;
  clean.skipped += more.skipped;
  clean.errors += more.errors;
  clean.failures.insert(clean.failures.end(), more.failures.begin(), more.failures.end());
}

}  // namespace

int64_t SelftestResult::count(FaultResult::Outcome o) const {
  return std::ranges::count_if(faults, [o](const FaultResult& f) { return f.outcome == o; });
}

int SelftestResult::exit_code() const {
  if (count(Outcome::kError) > 0 || clean.errors > 0 || !unfinished.empty()) return 5;
  if (count(Outcome::kEscaped) > 0 || !clean.failures.empty()) return 1;
  return count(Outcome::kCaught) > 0 ? 0 : 6;
}

std::string SelftestStep::text() const {
  return fmt::format("{} on {}", fault.empty() ? "clean " + item : fault, kernel->name);
}

std::vector<SelftestStep> plan_selftest(KernelTable table, DeviceKind device,
                                        const SelftestOptions& options) {
  std::vector<SelftestStep> steps;
  const std::vector<FaultClass> groups = all_faults();
  for (const Op op : kOps) {
    for (const Kernel* kernel : select_kernels(table, op, device, options.kernels)) {
      std::set<std::string> cases;
      std::vector<SelftestStep> with_faults;
      for (const FaultClass& group : groups) {
        for (const Fault& fault : group.faults) {
          if (options.chosen && !options.chosen(full_name(group, fault))) continue;
          const Case own = fault_case(fault.cases[0], 1);
          if (own.params.op != op) continue;
          if (!options.sweep_checks) {
            cases.insert(fault.cases.begin(), fault.cases.end());
            with_faults.push_back({kernel, full_name(group, fault)});
          }
          for (const Case* c : likely_first(options.cases, own))
            with_faults.push_back({kernel, full_name(group, fault), case_yaml(c->params, c->batch), c->seed,
                                   options.sweep_checks});
        }
      }
      for (const std::string& yaml : cases) {
        if (fault_case(yaml, 1).params.op != op) continue;
        for (int seed = 1; seed <= options.seeds; ++seed) {
          steps.push_back({kernel, "", in_type_of(*kernel, yaml), static_cast<uint64_t>(seed)});
        }
      }
      steps.insert(steps.end(), with_faults.begin(), with_faults.end());
    }
  }
  return steps;
}

StepResult run_step(const SelftestStep& step, Device& device, const Follower& before) {
  if (step.fault.empty()) return {std::nullopt, run_clean(step, device, before)};
  const auto [group, fault] = find_fault(step.fault);
  return {run_fault(*group, *fault, step, device, before), {}};
}

std::string repro_of_clean(const SelftestStep& step, const std::string& device) {
  const Case c = fault_case(step.item, step.seed);
  return repro_line({&c, step.kernel}, device, all_checks(2));
}

std::string what_of_fault(const std::string& class_and_name) {
  return find_fault(class_and_name).second->what;
}

SelftestResult run_selftest(const std::vector<SelftestStep>& steps,
                            const std::function<StepResult(const SelftestStep&)>& run,
                            const SelftestOptions& options) {
  SelftestResult result;
  std::size_t done = 0;
  std::set<const Kernel*> begun, wrong;  // wrong by themselves; one that crashes may be right in other cases
  std::string fault;                     // in hand, as text
  for (const SelftestStep& step : steps) {
    if (!step.fault.empty() && wrong.contains(step.kernel)) continue;
    const bool again = !step.fault.empty() && step.text() == fault;  // on the next case of a sweep
    if (again && result.faults.back().outcome == Outcome::kCaught) continue;
    if (options.stop && options.stop()) {
      result.unfinished = "interrupted";
      break;
    }
    if (options.progress && step.fault.empty() && begun.insert(step.kernel).second)
      options.progress(fmt::format("clean runs, without a fault, on {}", step.kernel->name));
    try {
      const StepResult found = run(step);
      ++done;
      add(found.clean, result.clean);
      for (const CleanFailure& f : found.clean.failures) {
        if (f.beside.empty() && found.clean.errors == 0) wrong.insert(step.kernel);
      }
      if (!found.fault) continue;
      fault = step.text();
      if (!again) result.faults.push_back(*found.fault);
      if (again && found.fault->outcome != Outcome::kNotApplicable) result.faults.back() = *found.fault;
    } catch (const DeviceError& e) {
      result.unfinished = fmt::format("{}: {}", step.text(), e.what());
      break;
    }
    const FaultResult& f = result.faults.back();
    const bool goes_on = step.sweep_checks && f.outcome != Outcome::kCaught;
    if (options.progress && f.outcome != Outcome::kNotApplicable && !goes_on) {
      options.progress(fmt::format("{:<14} {}/{} on {}: {}", outcome_name(f.outcome), f.fault_class, f.name,
                                   f.kernel, f.reason));
    }
  }
  if (!result.unfinished.empty()) {
    result.unfinished += fmt::format("; {} of {} steps were done", done, steps.size());
  }
  return result;
}

SelftestResult run_selftest(KernelTable table, Device& device, const SelftestOptions& options) {
  const auto run = [&](const SelftestStep& step) {
    StepResult found = run_step(step, device, [&](const std::string& id) {
      set_in_hand(fmt::format("selftest {}, case {}", step.text(), id));
    });
    set_in_hand("");
    return found;
  };
  return run_selftest(plan_selftest(table, device.info().kind, options), run, options);
}

}  // namespace attnbench
