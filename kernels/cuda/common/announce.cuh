// Announces bytes to a barrier without arriving at it.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"

namespace attnbench::hopper {

/// Adds `bytes`, which the copy engine will deliver, to the bytes that the current phase of `barrier` waits
/// for. The phase cannot end before this call: its arrival comes later, when everything that it publishes is
/// ready. PTX ISA, "Parallel Synchronization: mbarrier: expect-tx operation".
__device__ __forceinline__ void announce_bytes(Mbarrier& barrier, uint32_t bytes) {
  cuda::ptx::mbarrier_expect_tx(cuda::ptx::sem_relaxed, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                &barrier.word, bytes);
}

}  // namespace attnbench::hopper
