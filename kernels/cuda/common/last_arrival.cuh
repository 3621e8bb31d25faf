// Finds out which of several blocks arrives last, or waits for all of them, and reads what the other blocks
// wrote to global memory.
#pragma once

#include <cstdint>

namespace attnbench::hopper {

/// Counts an arrival at `counter`, which starts at 0. Returns true for the last of `expected` arrivals, which
/// also sets the counter back to 0.
///
/// The atomic releases and acquires at GPU scope. Writes that a block ordered before its arrival (by a
/// barrier of the block) are visible to the last arriving thread, and to threads that meet it at a later
/// barrier. PTX ISA, "Parallel Synchronization and Communication Instructions: atom", and "Memory Consistency
/// Model".
__device__ __forceinline__ bool arrive_last(uint32_t* counter, uint32_t expected) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(expected - 1)
               : "memory");
  return before == expected - 1;
}

/// Counts an arrival at `counter`, of `expected` ones. The last sets the counter back to 0. Releases as arrive_last()
/// does.
__device__ __forceinline__ void arrive(uint32_t* counter, uint32_t expected) {
  asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(counter), "r"(expected - 1) : "memory");
}

/// Waits until `counter` has at least `count` arrivals, and acquires what they released. With
/// ATTNBENCH_TRAP_ON_HANG an endless wait faults, as in Mbarrier::wait.
__device__ __forceinline__ void await_arrivals(const uint32_t* counter, uint32_t count) {
  for (uint32_t tries = 0;; ++tries) {
    uint32_t seen;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    if (seen >= count) return;
#ifdef ATTNBENCH_TRAP_ON_HANG
    if (tries == 1u << 22) asm volatile("st.global.u32 [%0], %1;" ::"l"(0ull), "r"(tries) : "memory");
#endif
  }
}

/// Loads from L2, because the L1 caches are not coherent. The asm is volatile so that the loads stay behind
/// the arrival. PTX ISA, "Data Movement and Conversion Instructions: ld" (cache operator .cg).
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
