// Loads by the bulk tensor copy engine (TMA). PTX ISA, "Data Movement: cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cuda/ptx>

#include "kernels/cuda/common/mbarrier.cuh"

namespace attnbench::hopper {

/// Fetches a map ahead of its first use. `map` lies in kernel parameters. PTX ISA, "Data Movement: prefetch".
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Copies the box of `map` at `coordinates` (innermost first) to `destination`; its bytes, those outside the
/// tensor included, count on `done`. One thread. Elements outside the tensor arrive as zeros.
template <int kRank>
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap& map,
                                         const int32_t (&coordinates)[kRank], Mbarrier& done) {
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination, &map,
                                  coordinates, &done.word);
}

}  // namespace attnbench::hopper
