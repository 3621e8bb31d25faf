// NVIDIA's profiling library, opened at run time: what the hardware counted while a launch ran. A machine
// without it, or a driver that keeps its counters to root, costs figures, never a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device.h"

namespace attnbench {

/// Where the library may be, in the order in which it is looked for: the loader's path, then the CUDA
/// Toolkits of CUDA_HOME, CUDA_PATH and /usr/local/cuda.
std::vector<std::string> cupti_libraries();

class Cupti {
 public:
  /// Of the GPU that CUDA counts as `ordinal`. nullptr, with the reason and what mends it, where the library
  /// or the chip's counters cannot be had.
  static std::unique_ptr<Cupti> open(int ordinal, std::string& why_not,
                                     const std::vector<std::string>& libraries = cupti_libraries());
  ~Cupti();
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  /// Counts `launch`, which returns when it is done on the GPU, as often as the counters need passes, and
  /// calls `prepare`, which is not counted, before each. All of the context's work between the two ends of a
  /// launch is counted, so nothing else may run on it. The profiler is attached for as long as this lasts: it
  /// slows launches down. Errors of the two callables pass through; those of CUPTI are the reading's reason.
  CounterReading count(void* context, const std::function<void()>& prepare,
                       const std::function<void()>& launch);

  /// Launches that one reading takes at most: a chip that wants more is refused.
  static constexpr int kMaxPasses = 16;

 private:
  struct Impl;
  explicit Cupti(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnbench
