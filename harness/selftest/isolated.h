// A selftest whose kernels run in a worker process: one that crashes or hangs is the error of one step, and a
// new worker goes on.
//
//   to the worker     {"open": {"device", "threads"}}             first
//                     {"step": {"kernel", "op", "fault", "item", "seed"}}
//   to the supervisor {"ready": {"device": {...}}} or {"failed": "why"}
//                     {"case": id}                                what the step has taken up
//                     {"step": {...}}                             what it found (selftest/report.h)
//                     {"lost": "why"}                             the device is; the worker ends
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/selftest/selftest.h"
#include "harness/session/worker_process.h"

namespace attnbench {

struct IsolatedOptions {
  std::vector<std::string> worker_command;            ///< argv of a worker
  std::string device;                                 ///< "cpu", "cuda:0"
  int threads = 0;                                    ///< host threads; 0: all
  double timeout_s = 120;                             ///< of one step
  std::function<void(std::string_view text)> output;  ///< what the worker and its kernels print
};

class IsolatedSteps {
 public:
  explicit IsolatedSteps(IsolatedOptions options) : options_(std::move(options)) {}
  ~IsolatedSteps();

  /// Starts a worker and opens its device. Throws DeviceError where it cannot be opened; `lost` where the
  /// worker ended without saying so.
  DeviceInfo open();

  /// Runs a step. What ends or stops the worker is an error of the step. Throws DeviceError where no new
  /// worker can open the device, and where several steps have hung.
  StepResult run(const SelftestStep& step);

 private:
  struct Answer {
    std::optional<Message> message;
    std::string failure;  ///< why there is none: "the worker process was killed by ..."
  };
  Answer wait_for_answer(double seconds);
  /// The next message of the worker that has arrived; nullopt where none has.
  std::optional<Message> next_message();
  void take_log();

  IsolatedOptions options_;
  std::unique_ptr<WorkerProcess> process_;
  LineBuffer lines_;
  int timeouts_ = 0;
  std::string log_;  ///< the end of what it printed during the step in hand
};

/// The worker's side; returns the exit code of the process.
int serve_steps(KernelTable table);

}  // namespace attnbench
