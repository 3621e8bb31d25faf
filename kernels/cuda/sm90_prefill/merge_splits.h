// Merges the partial states that splits leave (split.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// By-value parameter of the kernel.
struct MergeParams {
  int32_t block_m;
  int32_t block_n;
  DType dtype;   ///< of O: bf16 or fp16
  bool cascade;  ///< the states are those of a cascade (cascade.h); head_dim 128
};

/// Enqueues the kernel behind the attention kernel, whose arguments are `p`. The kernel starts early, and
/// waits for the attention kernel's end.
cudaError_t launch_merge(const KernelParams& p, const MergeParams& merge, int head_dim, cudaStream_t stream);

}  // namespace attnbench::sm90_prefill
