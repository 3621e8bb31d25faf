// The sum of a number of each thread of a block.
#pragma once

#include <cstdint>

namespace attnbench {

/// Adds the wrapping sum of all threads' `mine` to *sum, by one atomic operation: many on one address take
/// longer than reading the memory that is summed. Every thread of the block must call it.
template <int kThreads>
__device__ void add_of_block(uint64_t mine, unsigned long long* sum) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  __shared__ uint64_t of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) mine += __shfl_down_sync(0xffffffffu, mine, lane);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint64_t all = 0;
  for (const uint64_t part : of_warp) all += part;
  atomicAdd(sum, static_cast<unsigned long long>(all));
}

}  // namespace attnbench
