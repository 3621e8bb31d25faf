// Launches a kernel so that it may begin before the previous kernel of its stream has ended. Host code.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace attnbench::hopper {

/// Enqueues `kernel` with `smem_bytes` of dynamic shared memory per block. With `early` it may begin once all
/// blocks of the previous kernel have called cudaTriggerProgrammaticLaunchCompletion or have ended. It then
/// waits for that kernel by cudaGridDependencySynchronize where it must.
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
