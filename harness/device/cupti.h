// NVIDIA's profiling library (CUPTI), opened at run time: what the hardware counted during a launch. If the
// library is missing, or the driver keeps counters to root, only these figures are missing; the run goes on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device.h"

namespace attnbench {

/// Possible paths of the library, in the order of the search: the loader's path, then the CUDA Toolkits of
/// CUDA_HOME, CUDA_PATH and /usr/local/cuda.
std::vector<std::string> cupti_libraries();

class Cupti {
 public:
  /// Opens the counters of the GPU with CUDA's ordinal `ordinal`. Returns nullptr if the library or the
  /// chip's counters are not available; `why_not` then gives the reason and the remedy.
  static std::unique_ptr<Cupti> open(int ordinal, std::string& why_not,
                                     const std::vector<std::string>& libraries = cupti_libraries());
  ~Cupti();
  Cupti(const Cupti&) = delete;
  Cupti& operator=(const Cupti&) = delete;

  /// Counts `launch`, which returns when the GPU has finished it, once per pass that the counters need. Calls
  /// `prepare`, which is not counted, before each launch. All work in the context during a launch is counted,
  /// so nothing else may run on it. The profiler is attached only during this call, because it slows
  /// launches. Errors of the two callables pass through; an error of CUPTI becomes the reading's reason.
  CounterReading count(void* context, const std::function<void()>& prepare,
                       const std::function<void()>& launch);

  /// Most launches for one reading. A chip that needs more is refused.
  static constexpr int kMaxPasses = 16;

 private:
  struct Impl;
  explicit Cupti(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnbench
