// The block's 16 hardware barriers. PTX ISA, "Parallel Synchronization: bar". Barrier 0 is __syncthreads.
#pragma once

#include <cstdint>

namespace attnbench::hopper {

/// Waits until `threads` threads, this one included, have come to barrier `id` by sync or arrive.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Like named_barrier_sync. Returns whether `vote` is true in any of the threads.
__device__ __forceinline__ bool named_barrier_any(int id, int threads, bool vote) {
  uint32_t any;
  asm volatile(
      "{\n"
      "  .reg .pred p, q;\n"
      "  setp.ne.u32 p, %1, 0;\n"
      "  barrier.cta.red.or.pred q, %2, %3, p;\n"
      "  selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(vote)), "r"(id), "r"(threads)
      : "memory");
  return any != 0;
}

/// Arrives at barrier `id` without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attnbench::hopper
