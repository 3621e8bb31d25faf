// Accesses to shared memory by a 32-bit address, which take fewer instructions than by a pointer. They are
// volatile, so that they stay between the barrier waits and arrivals that guard the words.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace attnbench::hopper {

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ uint32_t load_word(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
  return word;
}
__device__ __forceinline__ void store_word(uint32_t address, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

/// The same for a unit of 16 bytes.
__device__ __forceinline__ uint4 load_unit(uint32_t address) {
  uint4 u;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(u.x), "=r"(u.y), "=r"(u.z), "=r"(u.w)
               : "r"(address)
               : "memory");
  return u;
}
__device__ __forceinline__ void store_unit(uint32_t address, const uint4& u) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(u.x), "r"(u.y), "r"(u.z),
               "r"(u.w)
               : "memory");
}

}  // namespace attnbench::hopper
