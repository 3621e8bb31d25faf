// Finding out which of several blocks came last, and reading what the others left in global memory.
#pragma once

#include <cstdint>

namespace attnbench::hopper {

/// Counts an arrival at `counter`, which starts at 0; true for the last of `expected`, which leaves 0 again.
///
/// Release and acquire at the scope of the GPU: whatever the arriving threads' blocks ordered before their
/// arrivals (by a barrier of the block) is seen by the last one, and by those it meets at a barrier later.
/// PTX ISA, "Parallel Synchronization and Communication Instructions: atom", and "Memory Consistency Model".
__device__ __forceinline__ bool arrive_last(uint32_t* counter, uint32_t expected) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(expected - 1)
               : "memory");
  return before == expected - 1;
}

/// Loads from L2: the first-level caches are not coherent. Volatile, so that they stay behind the arrival.
/// PTX ISA, "Data Movement and Conversion Instructions: ld" (cache operator .cg).
__device__ __forceinline__ float load_l2(const float* address) {
  float x;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(address) : "memory");
  return x;
}

__device__ __forceinline__ void load_l2(float (&x)[2], const float* address) {
  asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "l"(address) : "memory");
}

__device__ __forceinline__ void load_l2(float (&x)[4], const float* address) {
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(address)
               : "memory");
}

}  // namespace attnbench::hopper
