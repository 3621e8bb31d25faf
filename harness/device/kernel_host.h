// The process in which kernels run, where it is not this one (launch/runner.h).
#pragma once

#include <functional>
#include <optional>

#include "harness/device/gpu_pages.h"
#include "harness/facts/device_info.h"

namespace attnbench {

struct LaunchWatch;
struct Sample;

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
  using Launches = std::function<void()>;
  virtual ~KernelHost() = default;
  /// Where tensors must lie that a kernel sees.
  virtual KernelMemory& memory() = 0;
  /// Time of the last call into a kernel, in us.
  virtual double last_us() const = 0;
  /// Before a launch that `clock` times: wakes `threads` threads of the process, and stops it again.
  virtual void begin(int threads, TimeClock clock) = 0;
  /// After it. The process is stopped.
  virtual HostedTimes end() = 0;
  /// Runs all launches that `launches` asks for without a stop between them.
  virtual Go time_go(const Launches& launches) = 0;
  /// Looks for a while, in which the process is stopped, whether others want the cores that `threads` threads need.
  virtual bool disturbed(int threads) const = 0;
};

/// A word of the judge's for which a GPU waits, and what it is set to.
struct GpuHold {
  const void* at;
  uint32_t ticket;
  std::function<void()> end;  ///< sets it
};

/// Of a GPU. What Device does, too, is done in the other process. Functions get the launches to be done: while they are
/// called, the launch functions of kernels only note them.
class GpuHost : public KernelHost {
 public:
  /// `changes` of the memory are passed on before each call, and by pass_on().
  virtual void share(std::function<std::vector<GpuPages>()> changes) = 0;
  virtual void pass_on() = 0;
  virtual Sample time_launch(const Launches& launches, CacheMode cache, const LaunchWatch* watch) = 0;
  virtual CounterReading count_launch(const Launches& launches, const Launches& prepare, CacheMode cache) = 0;
  virtual std::function<void()> capture_graph(const Launches& launches) = 0;
  using KernelHost::time_go;
  /// The first launch begins when `hold` ends. Go::us is 0 if a launch has waited for the GPU meanwhile.
  virtual Go time_go(const Launches& launches, const GpuHold& hold) = 0;
};

}  // namespace attnbench
