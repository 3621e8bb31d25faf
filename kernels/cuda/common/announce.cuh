// Announcing bytes to a barrier without arriving at it.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"

namespace attnbench::hopper {

/// Adds `bytes` that the copy engine will deliver to those of the current phase, which cannot end before: its
/// arrival comes later, when all that it publishes is ready. PTX ISA, "Parallel Synchronization: mbarrier:
/// expect-tx operation".
__device__ __forceinline__ void announce_bytes(Mbarrier& barrier, uint32_t bytes) {
  cuda::ptx::mbarrier_expect_tx(cuda::ptx::sem_relaxed, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                &barrier.word, bytes);
}

}  // namespace attnbench::hopper
