// The kernel. Blocks have one or two producer warps, four or eight consumer warps and, for some launches, another
// warp that appends or that loads scales. Each block computes one
// part of one KV head.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/append_warp.cuh"
#include "kernels/cuda/sm90_decode/consumer.cuh"
#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_decode/key_scales.cuh"
#include "kernels/cuda/sm90_decode/opening.cuh"
#include "kernels/cuda/sm90_decode/producer.cuh"

namespace attnbench::sm90_decode {

/// Initialises the barriers. All warps call it, and each does its share.
template <Shape kShape>
__device__ __forceinline__ void init_barriers(SharedMemory<kShape>& smem, int warp, int lane) {
  using D = Derived<kShape>;
  if (warp >= D::kFirstConsumerWarp && lane == 0) {
    smem.init_barriers(warp - D::kFirstConsumerWarp);
    hopper::fence_barrier_init();
  }
  if constexpr (kShape.append) {
    if (warp == D::kProducerWarps) init_append_barriers<kShape>(smem, lane);
  }
}

/// `map_q` has dimensions (64 channels, head, token, chunk); `map_k` and `map_v` are row-window maps. Block
/// (x, y) computes part y, counted from the last, of KV head x. So neighbouring blocks read neighbouring
/// heads of the same tokens at about the same time, and the parts that a block may wait for (handover.cuh)
/// have begun before it. Dynamic shared memory: kSmemBytes. `Choice::kShape` is the Shape (a type, because
/// nvcc's launch stubs cannot spell a Shape).
template <class Choice>
__global__ void __launch_bounds__(Derived<Choice::kShape>::kThreads, Choice::kShape.blocks_per_sm)
    decode_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                  const __grid_constant__ CUtensorMap map_v, const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  using D = Derived<kShape>;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<SharedMemory<kShape>*>(dynamic_smem + (-offset & 1023u));

  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the same in all lanes
  const int lane = threadIdx.x % 32;
  const int32_t kv_head = blockIdx.x;
  const int32_t part = static_cast<int32_t>(gridDim.y) - 1 - blockIdx.y;

  Opening<kShape> opening(p, part, warp, lane);
  init_barriers<kShape>(smem, warp, lane);
  __syncthreads();  // the barriers are initialised
  if (threadIdx.x == 32 * D::kFirstConsumerWarp + 32) {
    hopper::prefetch_map(map_q);
    hopper::prefetch_map(map_k);
    hopper::prefetch_map(map_v);
  }
  opening.find_in_block(smem);

  if (warp < D::kWalkingWarps) {
    opening.begin(map_q, map_k, map_v, smem, kv_head, warp);
    if constexpr (kShape.int8_kv) {
      if (warp == D::kProducerWarps) {
        ScaleProducer<kShape>(map_k, map_v, p, smem, kv_head, lane, opening.pages())
            .run(opening.partition(), part, opening.work(), opening.start());
        return;
      }
    }
    if (warp == 0) {
      FirstProducer<kShape>(map_q, map_k, map_v, p, smem, kv_head, lane, opening.pages(),
                            opening.new_tokens())
          .run(opening.partition(), part, opening.work(), opening.start(), opening.begun());
    } else {
      ValueProducer<kShape>(map_k, map_v, p, smem, kv_head, lane, opening.pages(), opening.new_tokens())
          .run(opening.partition(), part, opening.work(), opening.start());
    }
  } else if (kShape.append && warp < D::kFirstConsumerWarp) {
    if constexpr (kShape.append) AppendWarp<kShape>(p, smem, kv_head, lane).run(part, opening.guess());
  } else {
    Consumer<kShape>(p, smem, kv_head).run();
  }
}

template <class Choice>
cudaError_t launch_choice(const Maps& maps, const KernelParams& p, cudaStream_t stream, cudaEvent_t started) {
  constexpr auto kBytes = kSmemBytes<Choice::kShape>;
  static_assert(kBytes <= 227 * 1024 && (kBytes + 1024) * Choice::kShape.blocks_per_sm <= 228 * 1024);
  const cudaError_t error = cudaFuncSetAttribute(
      decode_kernel<Choice>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes));
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (started != nullptr) {
    attributes[count].id = cudaLaunchAttributeLaunchCompletionEvent;
    attributes[count++].val.launchCompletionEvent.event = started;
  }
  // Blocks that wait for others (handover.cuh, merge_shared_rows) must all be resident at once.
  if (Derived<Choice::kShape>::kWaits && !p.split_every_unit && p.parts > 1) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(p.attention.num_heads_kv, p.parts);
  config.blockDim = Derived<Choice::kShape>::kThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, decode_kernel<Choice>, maps.q, maps.k, maps.v, p);
}

template <class Choice>
constexpr Instance make_instance(decltype(Instance::launch) launch) {
  return describe<Choice::kShape>(launch);
}

}  // namespace attnbench::sm90_decode
