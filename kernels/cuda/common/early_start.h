// Launching a kernel so that it may begin while the one before it on its stream ends. Host code.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace attnbench::hopper {

/// Enqueues `kernel` with so much dynamic shared memory per block. `early`: it may begin once all blocks of
/// the kernel before it have begun or said so, and waits by cudaGridDependencySynchronize where it must.
template <class... Params, class... Args>
cudaError_t launch_early(void (*kernel)(Params...), int blocks, int threads, std::size_t smem_bytes,
                         bool early, cudaStream_t stream, const Args&... args) {
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(smem_bytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute early_start{};
  early_start.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early_start.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  config.attrs = &early_start;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace attnbench::hopper
