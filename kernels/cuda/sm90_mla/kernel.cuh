// The kernel. A block has two consumer teams of four warps each, and a producer warp. It computes one part of
// one line, and merges its share of the sequences that are cut.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/sm90_mla/consumer.cuh"
#include "kernels/cuda/sm90_mla/merge.cuh"
#include "kernels/cuda/sm90_mla/producer.cuh"

namespace attnbench::sm90_mla {

/// Block (x, y) computes part y of line x. Dynamic shared memory: kSmemBytes. `Choice::kShape` is the Shape.
template <class Choice>
__global__ void __launch_bounds__(kThreads, 1)
    mla_kernel(const __grid_constant__ Maps maps, const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<SharedMemory<kShape>*>(dynamic_smem + (-offset & 1023u));

  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the same in all lanes
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    hopper::prefetch_map(maps.q);
    for (const Maps::Keys* keys : {&maps.half, &maps.rest}) {
      hopper::prefetch_map(keys->rows);
      hopper::prefetch_map(keys->tail);
    }
    smem.init_barriers();
    hopper::fence_barrier_init();
  }
  __syncthreads();

  const Place<kShape> place(p);
  if (warp >= kConsumerWarps) {
    hopper::lower_register_limit<kProducerRegisters>();
    if (warp == kConsumerWarps) {
      Producer<kShape>(maps, p, smem, place, lane).run(blockIdx.y);
    }
  } else {
    hopper::raise_register_limit<kConsumerRegisters>();
    Consumer<kShape>(p, smem, place).run();
    merge_splits<kShape>(p, smem, place);
  }
}

template <class Choice>
cudaError_t launch_choice(const Maps& maps, const KernelParams& p, cudaStream_t stream) {
  constexpr Shape kShape = Choice::kShape;
  constexpr auto kBytes = kSmemBytes<kShape>;
  static_assert(kBytes <= 227 * 1024);
  const cudaError_t error = cudaFuncSetAttribute(
      mla_kernel<Choice>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(p.attention.num_heads_kv * p.row_tiles, p.parts);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &cooperative;
  // Blocks that wait for others (merge.cuh) must all be resident at once.
  config.numAttrs = p.parts > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, mla_kernel<Choice>, maps, p);
}

template <class Choice>
constexpr Instance make_instance(decltype(Instance::launch) launch) {
  return {Choice::kShape.dtype, launch};
}

}  // namespace attnbench::sm90_mla
