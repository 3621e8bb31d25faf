// Words in global memory that are their own flags: a word holds kAbsent until it is written.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace attnbench::hopper {

/// All bits set. No computed number has these bits: a NaN that the GPU computes is 0x7fffffff.
inline constexpr uint32_t kAbsent = ~0u;

/// The bits of x, but never kAbsent; a NaN stays NaN.
__device__ __forceinline__ uint32_t present(float x) { return min(__float_as_uint(x), kAbsent - 1); }

/// Orders what this thread wrote, or saw written, before the words that it then stores; and the words that it has
/// loaded before what it then reads. PTX ISA, "membar/fence" and "Memory Consistency Model".
__device__ __forceinline__ void fence_words() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

/// Stores two words, relaxed at GPU scope. PTX ISA, "st".
__device__ __forceinline__ void store_words(float2* at, uint32_t x, uint32_t y) {
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(x), "r"(y) : "memory");
}

/// Loads two words, relaxed at GPU scope. Returns whether both are there. PTX ISA, "ld".
__device__ __forceinline__ bool are_present(const float2* at) {
  uint32_t x, y;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "l"(at) : "memory");
  return max(x, y) != kAbsent;
}

}  // namespace attnbench::hopper
