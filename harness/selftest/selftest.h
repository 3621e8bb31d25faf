// The selftest of the checks: every fault must be caught on a kernel that is right without it, and no clean
// run may fail.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/device/device.h"
#include "harness/facts/verdict.h"
#include "harness/launch/launcher.h"

namespace attnbench {

/// How the cases of a sweep are checked.
struct SweepChecks {
  CheckMode mode = CheckMode::kSampled;
  bool invariants = false;
};

struct SelftestOptions {
  std::vector<std::string> kernels;  ///< names; empty: all kernels of the device
  int seeds = 1;                     ///< clean runs take seeds 1..seeds of every case
  /// Cases of a sweep, in place of those of the faults: each fault runs on them until one catches it. Those with most
  /// of its keys come first. Used if `sweep_checks` is set.
  std::vector<Case> cases;
  std::optional<SweepChecks> sweep_checks;
  std::function<bool(const std::string& class_and_name)> chosen;  ///< "mask/causal_top_left"; null: all
  std::function<void(const std::string& line)> progress;          ///< one line per fault; may be null
  std::function<bool()> stop;  ///< true: begin no further step; may be null
};

/// One step of a selftest: a fault on a kernel, or the clean runs of one case with one seed.
struct SelftestStep {
  const Kernel* kernel;
  std::string fault;  ///< "mask/causal_top_left"; empty: a clean run
  std::string item;   ///< the case's mapping; empty: those of the fault
  uint64_t seed = 1;
  std::optional<SweepChecks> sweep_checks;  ///< nullopt: the case is one of a fault's, and has all checks

  std::string text() const;  ///< "mask/causal_top_left on mine", "clean {batch: q5} on mine"
};

struct FaultResult {
  enum class Outcome {
    kCaught,
    kEscaped,        ///< no detector fired
    kNotApplicable,  ///< the kernel refuses the cases, or the parameters that the fault gives it
    kError,          ///< the run did not end with a verdict
  };
  std::string name;
  std::string fault_class;
  std::string what;
  std::string kernel;
  std::string item;  ///< the case's id
  Outcome outcome = Outcome::kNotApplicable;
  std::vector<std::string> caught_by;  ///< detectors, by the names of verdict.h
  std::string reason;                  ///< of the first detector, the refusal or the error
  /// Two rules of thumb for the same O (kv_append: the same caches); true is "all is well". Both are empty if
  /// the fault did not run. twice_naive is also empty if naive() (host_view.h) cannot compute the case, so that O
  /// is compared with the right kernel's.
  std::optional<bool> allclose;     ///< within 1e-2 + 1e-2 |expected| everywhere
  std::optional<bool> twice_naive;  ///< largest error at most twice a naive computation's in this precision
};
inline constexpr const char* kFaultOutcomeNames[] = {"caught", "escaped", "not applicable", "error"};
constexpr const char* outcome_name(FaultResult::Outcome o) { return kFaultOutcomeNames[static_cast<int>(o)]; }

/// A clean run that failed.
struct CleanFailure {
  std::string kernel;
  std::string reason;
  std::string repro;  ///< the `attnbench run` line of the case on the kernel
  /// What faults do to a launch beside their mistake: "its inputs copied to other memory". The kernel passes
  /// without it. Empty: the kernel itself fails.
  std::string beside;
};

struct CleanResult {
  int64_t runs = 0;
  int64_t skipped = 0;  ///< cases that the kernel refuses
  std::vector<CleanFailure> failures;
  int64_t errors = 0;  ///< failures that are an error or a crash, no wrong result
};

/// The result of a step: `fault` is set for a fault, `clean` is used for clean runs.
struct StepResult {
  std::optional<FaultResult> fault;
  CleanResult clean;
};

struct SelftestResult {
  std::vector<FaultResult> faults;
  CleanResult clean;
  std::string unfinished;  ///< why some steps were not done; empty if all were

  int64_t count(FaultResult::Outcome o) const;
  /// What failed without a fault and what to do about it, a paragraph for each kernel; empty if nothing did.
  std::string clean_text() const;
  /// The first that holds. 5: something could not be run to its end. 1: a fault escaped or a clean run
  /// failed. 0: all faults that applied were caught. 6: no fault applied.
  int exit_code() const;
};

/// All steps for the chosen kernels and faults, and for the cases that these faults use. For each kernel, the clean runs
/// come first.
std::vector<SelftestStep> plan_selftest(KernelTable table, DeviceKind device, const SelftestOptions& options);

/// The `attnbench run` line of a clean step.
std::string repro_of_clean(const SelftestStep& step, const std::string& device);

/// What the wrong kernel of a fault does, in a few words.
std::string what_of_fault(const std::string& class_and_name);

/// Runs one step in this process. `before` gets the id of each case before it runs. Throws DeviceError if the
/// device is lost.
StepResult run_step(const SelftestStep& step, Device& device,
                    const std::function<void(const std::string& id)>& before);

/// Runs steps with `run` until all are done, `options.stop` returns true, or `run` throws DeviceError because
/// no further step can run. Faults on a kernel that was wrong in a clean run are left out: they would be caught by its own
/// mistake.
SelftestResult run_selftest(const std::vector<SelftestStep>& steps,
                            const std::function<StepResult(const SelftestStep&)>& run,
                            const SelftestOptions& options);
/// Plans all steps and runs them in this process.
SelftestResult run_selftest(KernelTable table, Device& device, const SelftestOptions& options);

}  // namespace attnbench
