// Copies from global to shared memory that use no registers, sm_80 and later. PTX ISA, "cp.async".
#pragma once

#include <cuda_runtime.h>

namespace attnbench {

/// Copies 16 bytes from `source` to the address `target` in shared memory, both aligned to 16. Without
/// `exists` it writes zeros and reads nothing.
__device__ __forceinline__ void copy_async_16(unsigned target, const void* source, bool exists) {
  asm volatile(
      "{\n"
      ".reg .pred absent;\n"
      "setp.eq.s32 absent, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, absent;\n"
      "}" ::"r"(target),
      "l"(source), "r"(static_cast<int>(exists))
      : "memory");
}

/// The same by a pointer.
__device__ __forceinline__ void copy_async_16(void* target, const void* source, bool exists) {
  copy_async_16(static_cast<unsigned>(__cvta_generic_to_shared(target)), source, exists);
}

/// Ends a group, which consists of this thread's copies since its previous group.
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most the last kPending groups of this thread are in flight.
template <int kPending>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace attnbench
