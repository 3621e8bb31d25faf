// Launches the attention kernel of one padded head_dim for runtime shapes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "kernels/cuda/simt/kernel.cuh"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {

/// Allows more than 48 KiB of dynamic shared memory, where the kernel needs it: once per function and device.
template <int kD, Kind kKind>
cudaError_t allow_shared_memory(int device) {
  constexpr int kBytes = Widths<kD, kKind>::kSharedBytes;
  static_assert(kBytes <= 96 * 1024, "sm_86 and sm_89 have 99 KiB per CTA");
  if constexpr (kBytes <= 48 * 1024) return cudaSuccess;
  static std::atomic<uint64_t> done{0};  // bit per device ordinal
  const uint64_t bit = device >= 0 && device < 64 ? uint64_t{1} << device : 0;
  if (done.load() & bit) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(attention_kernel<kD, kKind>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error == cudaSuccess) done.fetch_or(bit);
  return error;
}

/// How the launch cuts its keys into parts. With num_splits its outputs are laid out by partial_shape(p).
inline KeyParts key_parts(const AttentionParams& p) {
  if (p.num_splits <= 0) return {};
  const PartialShape shape = partial_shape(p);
  return {p.num_splits, shape.out_stride, shape.lse_stride};
}

#ifdef ATTNBENCH_ONE_INSTANCE
template <int kD, Kind kKind>
constexpr bool kHasCode = kD == 64 && kKind == Kind::kPlain;
#else
template <int kD, Kind kKind>
constexpr bool kHasCode = true;
#endif

template <int kD, Kind kKind>
KernelStatus launch_attention(const AttentionParams& p, const LaunchContext& context,
                              KernelMessage* message) {
  if constexpr (kHasCode<kD, kKind>) {
    const cudaError_t error = allow_shared_memory<kD, kKind>(context.device_ordinal);
    if (error != cudaSuccess) return cuda_status(error, message);
    const KeyParts parts = key_parts(p);
    const int64_t tiles =
        RowTiles<kKind == Kind::kListed>{p.num_heads_q / p.num_heads_kv}.count(std::max(p.max_seqlen_q, 1));
    constexpr int kMaxGridYZ = 65535;
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(tiles, INT32_MAX)),
                    static_cast<unsigned>(std::min(p.num_heads_kv, kMaxGridYZ)),
                    static_cast<unsigned>(std::min<int64_t>(int64_t{p.batch} * parts.count, kMaxGridYZ)));
    constexpr int kBytes = Widths<kD, kKind>::kSharedBytes;
    attention_kernel<kD, kKind>
        <<<grid, kThreads, kBytes, static_cast<cudaStream_t>(context.stream)>>>(p, parts);
    return cuda_status(cudaGetLastError(), message);
  }
  return cuda_status(cudaErrorNoKernelImageForDevice, message);
}

}  // namespace attnbench::cuda_simt
