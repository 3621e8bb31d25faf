// The runner's side of what a judge asks on a GPU.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "harness/launch/runner_messages.h"

namespace attnbench {

class GpuJobs {
 public:
  /// Launches a kernel; throws what it throws. Returned outputs go to the last argument.
  using Launch = std::function<void(Runner::Request&, ReturnedOutputs&)>;

  /// Opens cuda:N. Throws DeviceError.
  explicit GpuJobs(int gpu);
  void launches_by(Launch launch) { launch_ = std::move(launch); }

  /// Kernels get this process's stream.
  void* stream() const { return device_->launch_context().stream; }
  Device& device() { return *device_; }
  /// Throws DeviceError, and what launches throw.
  void answer(const Runner::Request& request, const GpuJob& job, std::vector<Runner::Request>& launches,
              Runner::Reply& reply);

 private:
  struct Launched {
    AttentionParams params;
    ReturnedOutputs returned;
  };
  struct Graph {
    std::function<void()> replay;
    std::vector<Launched> launched;
  };
  void time(const GpuJob& job, std::span<Runner::Request> launches, Runner::Reply& reply);
  void count(const GpuJob& job, std::span<Runner::Request> launches, Runner::Reply& reply);
  /// Enqueues them.
  void run(std::span<Runner::Request> launches);
  void take_outputs();

  std::unique_ptr<Device> device_;
  Launch launch_;
  std::vector<Launched> launched_;  ///< since outputs were taken
  std::deque<Graph> graphs_;
};

}  // namespace attnbench
