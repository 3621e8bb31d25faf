// Testing the tester: every fault must be caught on a kernel that is right without it, and no clean run may
// fail.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/run/launcher.h"

namespace attnbench {

struct SelftestOptions {
  std::vector<std::string> kernels;  ///< names; empty: all of the device
  int seeds = 1;                     ///< clean runs take seeds 1..seeds of every case
  std::function<bool(const std::string& class_and_name)> chosen;  ///< "mask/causal_top_left"; null: all
  std::function<void(const std::string& line)> progress;          ///< one line per fault; may be null
  std::function<bool()> stop;  ///< true: begin no further step; may be null
};

/// One thing that a selftest does: a fault, or the clean runs of one case with one seed.
struct SelftestStep {
  const Kernel* kernel;
  std::string fault;  ///< "mask/causal_top_left"; empty: a clean run
  std::string item;   ///< clean: the case's mapping
  uint64_t seed = 1;

  std::string text() const;  ///< "mask/causal_top_left on mine", "clean {batch: q5} on mine"
};

struct FaultResult {
  enum class Outcome {
    kCaught,
    kEscaped,        ///< every detector said that all is well
    kNotApplicable,  ///< the kernel refuses the cases, or the parameters that the fault would give it
    kError,          ///< the run itself went wrong
  };
  std::string name;
  std::string fault_class;
  std::string what;
  std::string kernel;
  std::string item;  ///< the case's id
  Outcome outcome = Outcome::kNotApplicable;
  std::vector<std::string> caught_by;  ///< detectors, by the names of verdict.h
  std::string reason;                  ///< of the first of them, of the refusal or of the error
  /// What two rules of thumb say of the same O (of the same caches): true is "all is well". Empty where the
  /// fault did not run; the second also where O is compared with the right kernel's, of what the computation
  /// on the host does not know.
  std::optional<bool> allclose;  ///< within 1e-2 + 1e-2 |expected| everywhere
  std::optional<bool>
      twice_naive;  ///< largest error at most twice that of a naive same-precision computation
};
constexpr const char* outcome_name(FaultResult::Outcome o) {
  constexpr const char* names[] = {"caught", "escaped", "not applicable", "error"};
  return names[static_cast<int>(o)];
}

struct CleanResult {
  int64_t runs = 0;
  int64_t skipped = 0;              ///< cases that the kernel refuses
  std::vector<std::string> alarms;  ///< runs that failed: repro line and reason
  int64_t errors = 0;               ///< alarms that are no wrong result, but an error or a crash
};

/// What a step found: of a fault, or of a clean run.
struct StepResult {
  std::optional<FaultResult> fault;
  CleanResult clean;
};

struct SelftestResult {
  std::vector<FaultResult> faults;
  CleanResult clean;
  std::string unfinished;  ///< why not all was done; empty where it was

  int64_t count(FaultResult::Outcome o) const;
  /// 0 where all that applied was caught and nothing else failed; 5 where something could not be run to its
  /// end; 1 where a fault escaped or a clean run failed; 6 where nothing ran.
  int exit_code() const;
};

std::vector<SelftestStep> plan_selftest(KernelTable table, DeviceKind device, const SelftestOptions& options);

/// What the wrong kernel of a fault does, in a few words.
std::string what_of_fault(const std::string& class_and_name);

/// Runs one step in this process; `before` gets the id of each case that it takes up. Throws DeviceError
/// where the device is lost.
StepResult run_step(const SelftestStep& step, Device& device,
                    const std::function<void(const std::string& id)>& before);

/// Runs all steps by `run`, which throws DeviceError where no further step can run, until `stop`.
SelftestResult run_selftest(const std::vector<SelftestStep>& steps,
                            const std::function<StepResult(const SelftestStep&)>& run,
                            const SelftestOptions& options);
/// All of them in this process.
SelftestResult run_selftest(KernelTable table, Device& device, const SelftestOptions& options);

}  // namespace attnbench
