// Loads by the bulk tensor copy engine (TMA). PTX ISA, "Data Movement: cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cuda/ptx>

#include "kernels/cuda/common/mbarrier.cuh"

namespace attnbench::hopper {

/// Returns true in one lane of a warp; all lanes call it. If the result decides who issues a copy, ptxas
/// knows that it is one lane and issues the copy directly. With any other condition it makes a loop over
/// lanes. PTX ISA, "elect.sync".
__device__ __forceinline__ bool elect_lane() {
  uint32_t elected;
  asm volatile(
      "{\n"
      "  .reg .pred p;\n"
      "  elect.sync _|p, 0xffffffff;\n"
      "  selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

/// Fetches a map ahead of its first use. `map` lies in kernel parameters. PTX ISA, "Data Movement: prefetch".
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Copies the box of `map` at `coordinates` (innermost first) to `destination`. One thread calls it. Elements
/// outside the tensor arrive as zeros. All bytes of the box, these included, count on `done`.
template <int kRank>
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap& map,
                                         const int32_t (&coordinates)[kRank], Mbarrier& done) {
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination, &map,
                                  coordinates, &done.word);
}

/// The same for data that a launch reads once: L2 evicts it before other data. PTX ISA, "createpolicy".
__device__ __forceinline__ void tma_load_once(void* destination, const CUtensorMap& map,
                                              const int32_t (&coordinates)[5], Mbarrier& done) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(
          static_cast<uint32_t>(__cvta_generic_to_shared(destination))),
      "l"(&map), "r"(coordinates[0]), "r"(coordinates[1]), "r"(coordinates[2]), "r"(coordinates[3]),
      "r"(coordinates[4]), "r"(static_cast<uint32_t>(__cvta_generic_to_shared(&done.word))), "l"(policy)
      : "memory");
}

}  // namespace attnbench::hopper
