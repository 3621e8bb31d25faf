// Launches a kernel so that it may begin before the previous kernel of its stream has ended, or so that all of its
// blocks run at once. Host code.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace attnbench::hopper {

/// When the blocks of a kernel begin.
enum class Start {
  kInOrder,  ///< after the previous kernel
  /// Once all blocks of the previous kernel have called cudaTriggerProgrammaticLaunchCompletion or have ended. The
  /// kernel then waits for that one by cudaGridDependencySynchronize where it must.
  kEarly,
  kAllAtOnce,  ///< after the previous kernel, all at once (a cooperative launch), so that they may wait for others
};

/// Enqueues `kernel` with `smem_bytes` of dynamic shared memory per block.
template <class... Params, class... Args>
cudaError_t launch_as(Start start, void (*kernel)(Params...), int blocks, int threads, std::size_t smem_bytes,
                      cudaStream_t stream, const Args&... args) {
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(smem_bytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute{};
  if (start == Start::kEarly) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  } else {
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = start == Start::kInOrder ? 0 : 1;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

/// The launch of an instance that this build leaves out (ATTNBENCH_CUDA_INSTANCES).
template <class... Params>
cudaError_t no_code(Params...) {
  return cudaErrorNoKernelImageForDevice;
}

}  // namespace attnbench::hopper
