// CUDA errors as exceptions.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench {

/// Throws OutOfMemory for cudaErrorMemoryAllocation, else DeviceError. The message has `what` and CUDA's name
/// and text of the error. `lost` is true if the context is unusable from here on. Clears CUDA's last error.
[[noreturn]] void throw_cuda(cudaError_t error, const char* what);

inline void cuda_check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw_cuda(error, what);
}

}  // namespace attnbench
