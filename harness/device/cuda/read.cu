#include "harness/device/read.h"

#include <cuda_runtime_api.h>

#include <cstring>

namespace attnbench {

int read_memory(const LaunchContext& context, void* to, const void* from, std::size_t bytes) {
  if (context.compute_capability == 0) {
    std::memcpy(to, from, bytes);
    return 0;
  }
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  return error != cudaSuccess ? error : cudaStreamSynchronize(stream);
}

}  // namespace attnbench
