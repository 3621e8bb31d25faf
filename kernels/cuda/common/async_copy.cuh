// Copies from global to shared memory that use no registers, sm_80 and later. PTX ISA, "cp.async".
#pragma once

#include <cuda_runtime.h>

namespace attnbench {

/// 16 bytes from `source` to `target`, both aligned; zeros where not `exists`, and nothing is read.
__device__ __forceinline__ void copy_async_16(void* target, const void* source, bool exists) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(target));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source),
               "r"(exists ? 16 : 0)
               : "memory");
}

/// Ends a group: the copies that this thread asked for since the last.
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most the last kPending groups of this thread are still on their way.
template <int kPending>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace attnbench
