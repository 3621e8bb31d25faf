// The rates that a GPU reaches, measured on it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "harness/device/cuda/launch_timer.h"
#include "harness/device/device.h"

namespace attnbench {

class CudaCeilings {
 public:
  /// `sink`: 8 bytes of device memory for what is written. All must outlive it.
  CudaCeilings(Device& device, LaunchTimer& timer, cudaStream_t stream, unsigned* sink)
      : device_(device), timer_(timer), stream_(stream), sink_(sink) {}

  /// As Device::ceilings. `note` ends theirs.
  const Ceilings& of(const std::vector<DType>& dtypes, const std::string& note);
  void adopt(const Ceilings& measured) {
    ceilings_ = measured;
    adopted_ = true;
  }

 private:
  void measure_memory();
  void measure_matmul(const std::vector<DType>& dtypes);

  Device& device_;
  LaunchTimer& timer_;
  cudaStream_t stream_;
  unsigned* sink_;
  Ceilings ceilings_;
  bool memory_measured_ = false;
  bool adopted_ = false;  ///< another process measured the ceilings
  std::string memory_note_;
  std::string matmul_note_ = "no matrix product asked for";
  std::vector<DType> matmul_tried_;
};

}  // namespace attnbench
