// From runtime shapes to one instantiation of the kernel.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/cuda/simt/kernel.cuh"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {

/// More than 48 KiB of dynamic shared memory has to be asked for, once per function and device.
template <DType kType, DType kKvType, int kD>
cudaError_t allow_shared_memory(int device) {
  static_assert(shared_bytes(kD) <= 96 * 1024, "sm_86 and sm_89 have 99 KiB per CTA");
  if constexpr (shared_bytes(kD) <= 48 * 1024) return cudaSuccess;
  static std::atomic<uint64_t> done{0};  // bit per device ordinal
  const uint64_t bit = device >= 0 && device < 64 ? uint64_t{1} << device : 0;
  if (done.load() & bit) return cudaSuccess;
  const cudaError_t error = cudaFuncSetAttribute(
      attention_kernel<kType, kKvType, kD>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(kD));
  if (error == cudaSuccess) done.fetch_or(bit);
  return error;
}

template <DType kType, DType kKvType, int kD>
KernelStatus launch_padded(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  if (const cudaError_t error = allow_shared_memory<kType, kKvType, kD>(context.device_ordinal);
      error != cudaSuccess) {
    return cuda_status(error, message);
  }
  const int64_t rows = int64_t{std::max(p.max_seqlen_q, 1)} * (p.num_heads_q / p.num_heads_kv);
  const int64_t tiles = (rows + kTile - 1) / kTile;
  constexpr int kMaxGridYZ = 65535;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(tiles, INT32_MAX)),
                  static_cast<unsigned>(std::min(p.num_heads_kv, kMaxGridYZ)),
                  static_cast<unsigned>(std::min(p.batch, kMaxGridYZ)));
  attention_kernel<kType, kKvType, kD>
      <<<grid, kThreads, shared_bytes(kD), static_cast<cudaStream_t>(context.stream)>>>(p);
  return cuda_status(cudaGetLastError(), message);
}

/// The kernel whose padded head dim is the next one up.
template <DType kType, DType kKvType = kType>
KernelStatus launch_dtype(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  if (p.head_dim <= 32) return launch_padded<kType, kKvType, 32>(p, context, message);
  if (p.head_dim <= 64) return launch_padded<kType, kKvType, 64>(p, context, message);
  if (p.head_dim <= 128) return launch_padded<kType, kKvType, 128>(p, context, message);
  return launch_padded<kType, kKvType, 256>(p, context, message);
}

}  // namespace attnbench::cuda_simt
