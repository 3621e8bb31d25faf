// A selftest whose kernels run in a worker process. If a kernel crashes or hangs, one step has an error, and
// a new worker goes on.
//
//   to the worker     {"open": {"device", "threads"}}             first
//                     {"step": {"kernel", "op", "fault", "item", "seed", "check", "invariants"}}
//   to the supervisor {"ready": {"device": {...}}} or {"failed": "why"}
//                     {"case": id}                                the case that the step begins
//                     {"step": {...}}                             the step's result (selftest/report.h)
//                     {"lost": "why"}                             the device is lost; the worker ends
#pragma once

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
  /// argv of a worker that opens this plug-in alone; empty: none, for built-in kernels.
  std::function<std::vector<std::string>(const std::string& plugin)> worker_command;
  std::function<std::string(const Kernel&)> plugin_of;  ///< empty: it is a built-in kernel
  std::string device;                                   ///< "cpu", "cuda:0"
  int threads = 0;                                      ///< host threads; 0: all
  double timeout_s = 120;                               ///< of one step
  std::function<void(std::string_view text)> output;    ///< gets what the worker and its kernels print
};

class IsolatedSteps {
 public:
  explicit IsolatedSteps(IsolatedOptions options) : options_(std::move(options)) {}
  ~IsolatedSteps();

  /// Starts a worker and opens its device. Throws DeviceError if the device cannot be opened, with `lost` set
  /// if the worker ended without an answer.
  DeviceInfo open();

  /// Runs a step. If the worker crashes or hangs, the step's result is an error. Throws DeviceError if no new
  /// worker can open the device, or if several steps have hung.
  StepResult run(const SelftestStep& step);

 private:
  struct Answer {
    std::optional<Message> message;
    std::string failure;  ///< why there is no message: "the worker process was killed by ..."
  };
  Answer wait_for_answer(double seconds);
  void take_log();
  /// Prints the first `size` bytes of what is not printed yet, less the last message of a worker that
  /// crashed: the step's result says the same.
  void print_lines(std::size_t size);

  IsolatedOptions options_;
  DeviceInfo open(const std::string& plugin);
  void end_worker();

  std::unique_ptr<WorkerProcess> process_;
  std::string plugin_;  ///< that process_ opens
  int timeouts_ = 0;
  std::string device_name_;
  std::string log_;        ///< the end of what the worker printed during this step
  std::string unprinted_;  ///< a line of it that has not ended
};

/// The worker's side; returns the exit code of the process.
int serve_steps(KernelTable table);

}  // namespace attnbench
