// The main kernel, and the launch of an instance.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/common/launch_as.h"
#include "kernels/cuda/sm90_backward/consumer.cuh"
#include "kernels/cuda/sm90_backward/producer.cuh"
#include "kernels/cuda/sm90_backward/rows.cuh"

namespace attnbench::sm90_backward {

/// Dynamic shared memory: SharedMemory and the slack to align it. `Choice::kShape` is the Shape (a type, because nvcc's
/// launch stubs cannot spell a Shape).
template <class Choice>
__global__ void __launch_bounds__(kThreads, 1)
    backward_kernel(const __grid_constant__ Maps maps, const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<SharedMemory<kShape>*>(dynamic_smem + (-offset & 1023u));

  const int warp_group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the same in all lanes
  const int warp = __shfl_sync(~0u, threadIdx.x / 32 % 4, 0);
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&maps.q, &maps.d_out, &maps.k, &maps.v}) hopper::prefetch_map(*map);
    smem.init_barriers();
    hopper::fence_barrier_init();
  }
  __syncthreads();

  if (warp_group == kTeams) {
    hopper::lower_register_limit<kProducerRegisters>();
    if (warp == 0) {
      if (hopper::elect_lane()) Producer<kShape>(maps, p, smem).run();
    } else if (warp <= kTeams) {
      if (hopper::elect_lane()) Adder<kShape>(p, smem, warp - 1).run();
    }
  } else {
    hopper::raise_register_limit<kConsumerRegisters>();
    Consumer<kShape>(p, smem, warp_group).run();
  }
}

/// The blocks of the main kernel are one per multiprocessor.
template <class Choice>
cudaError_t launch_choice(const Maps& maps, const KernelParams& p, int multiprocessors, cudaStream_t stream) {
  constexpr Shape kShape = Choice::kShape;
  constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) + 1024;
  static_assert(kSmemBytes <= 227 * 1024);
  cudaError_t error = launch_prepare<Choice>(p, stream);
  if (error != cudaSuccess) return error;
  error = hopper::launch_as(hopper::Start::kInOrder, backward_kernel<Choice>, multiprocessors, kThreads,
                            kSmemBytes, stream, maps, p);
  if (error != cudaSuccess) return error;
  return launch_finish<Choice>(p, stream);
}

template <class Choice>
constexpr Instance make_instance(decltype(Instance::launch) launch) {
  constexpr Shape kShape = Choice::kShape;
  return {kShape.dtype, kShape.head_dim, kShape.softcap, kShape.block_m, kBlockN, launch};
}

}  // namespace attnbench::sm90_backward
