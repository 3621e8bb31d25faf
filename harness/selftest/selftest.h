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
};

struct SelftestResult {
  std::vector<FaultResult> faults;
  CleanResult clean;

  int64_t count(FaultResult::Outcome o) const;
  /// 0 where all that applied was caught and nothing else failed; 1 where not; 6 where nothing ran.
  int exit_code() const;
};

SelftestResult run_selftest(KernelTable table, Device& device, const SelftestOptions& options);

}  // namespace attnbench
