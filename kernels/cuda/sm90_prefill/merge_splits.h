// Merges the partial states that splits leave (split.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_prefill {

/// Enqueues the kernel behind the attention kernel, an `instance` with the arguments `p`. The kernel starts
/// early, and waits for the attention kernel's end.
cudaError_t launch_merge(const KernelParams& p, const Instance& instance, cudaStream_t stream);

}  // namespace attnbench::sm90_prefill
