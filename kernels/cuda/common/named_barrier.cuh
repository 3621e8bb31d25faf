// The block's 16 hardware barriers. PTX ISA, "Parallel Synchronization: bar". Barrier 0 is __syncthreads.
#pragma once

namespace attnbench::hopper {

/// Waits until `threads` threads, this one included, have come to barrier `id` by sync or arrive.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Counts as having come to barrier `id`, without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attnbench::hopper
