// The process in which kernels run, where it is not this one (launch/runner.h).
#pragma once

#include <functional>
#include <optional>

#include "harness/device/shared_memory.h"

namespace attnbench {

/// What was seen of the calls of one timed launch.
struct HostedTimes {
  double us = 0;        ///< of the launch, by the clock of the kernel's process
  double outer_us = 0;  ///< by a clock that the kernel cannot reach, with the way there and back
  double cores_us = 0, handover_us = 0;  ///< probes just before the launch, as in Sample
  std::optional<double> waited_s;        ///< longest wait of a thread for a core during the launch
};

/// What was seen from outside of launches that followed each other.
struct Go {
  double us = 0;       ///< to the end of the last one
  double held_us = 0;  ///< until the process was stopped
  double cpu_us = 0;   ///< of the process and its descendants, until then
};

class KernelHost {
 public:
  virtual ~KernelHost() = default;
  /// Where tensors must lie that a kernel sees.
  virtual KernelMemory& memory() = 0;
  /// Time of the last call into a kernel, in us.
  virtual double last_us() const = 0;
  /// Before a timed launch: wakes `threads` threads of the process, and stops it again.
  virtual void begin(int threads) = 0;
  /// After it. The process is stopped.
  virtual HostedTimes end() = 0;
  /// Runs all launches that `launches` asks for without a stop between them.
  virtual Go time_go(const std::function<void()>& launches) = 0;
  /// Looks for a while, in which the process is stopped, whether others want the cores that `threads` threads need.
  virtual bool disturbed(int threads) const = 0;
};

}  // namespace attnbench
