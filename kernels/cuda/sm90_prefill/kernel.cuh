// The attention kernel: one block per multiprocessor, a warpgroup of producers, two or three of consumers and, in
// some instances, one of warps that convert or gather tiles.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/common/launch_as.h"
#include "kernels/cuda/sm90_prefill/consumer.cuh"
#include "kernels/cuda/sm90_prefill/convert.cuh"
#include "kernels/cuda/sm90_prefill/gather.cuh"
#include "kernels/cuda/sm90_prefill/instances.h"
#include "kernels/cuda/sm90_prefill/key_scales.cuh"
#include "kernels/cuda/sm90_prefill/producer.cuh"

namespace attnbench::sm90_prefill {

/// Dynamic shared memory: SharedMemory and the slack to align it. `Choice::kShape` is the Shape (a type,
/// because nvcc's launch stubs cannot spell a Shape).
template <class Choice>
__global__ void __launch_bounds__(Derived<Choice::kShape>::kThreads, 1)
    prefill_kernel(const __grid_constant__ Maps maps, const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  using D = Derived<kShape>;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<SharedMemory<kShape>*>(dynamic_smem + (-offset & 1023u));

  // The shuffles tell the compiler that these are the same in all lanes.
  const int warp_group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  if constexpr (kShape.split) cudaTriggerProgrammaticLaunchCompletion();  // merge_splits.cu waits for the end
  if (threadIdx.x == 0) {
    prefetch_maps(maps);
    smem.init_barriers();
    hopper::fence_barrier_init();
  }
  if (p.tokens_per_tile * p.heads_per_tile < kShape.block_m) {
    smem.clear_rows_from(p.tokens_per_tile * p.heads_per_tile);
  }
  __syncthreads();

  if (warp_group == 0) {
    hopper::lower_register_limit<D::kProducerRegisters>();
    if (warp == kSchedulingWarp) {
      schedule<kShape>(p, smem, threadIdx.x % 32);
    } else if constexpr (D::kQueriesApart) {
      if (warp == kKvWarp) {
        load_tiles(maps, p, smem, threadIdx.x % 32);
      } else {
        take_queries(maps, p, smem, warp == 0 ? 0 : 1, threadIdx.x % 32);
      }
    } else if (warp == 0) {
      produce<kShape>(maps, p, smem, threadIdx.x);
    } else if constexpr (D::kConverters == 2) {
      Converter<kShape>(p, smem, warp % 2, threadIdx.x % 32).run();
    } else if constexpr (D::kGatherers == 2) {
      load_small_pages(maps, p, smem, warp % 2, threadIdx.x % 32);
    } else if constexpr (kShape.int8_qk) {
      if (warp == kKeyScaleWarp) KeyScaleLoader<kShape>(p, smem, threadIdx.x % 32).run();
    }
  } else if (D::kHasHelpers && warp_group > D::kConsumers) {
    if constexpr (D::kHasHelpers) hopper::lower_register_limit<D::kHelperRegisters>();
    if constexpr (D::kConverters == 4) {
      Converter<kShape>(p, smem, warp % 4, threadIdx.x % 32).run();
    } else if constexpr (D::kGatherers == 4) {
      load_small_pages(maps, p, smem, warp % 4, threadIdx.x % 32);
    }
  } else {
    hopper::raise_register_limit<D::kConsumerRegisters>();
    Consumer<kShape>(p, smem, warp_group - 1).run();
  }
}

/// The same choice for launches without a window on the left. Code for windows costs these up to 9 % (LADDER.md).
template <class Choice>
struct WithoutWindows {
  static constexpr Shape kShape = [] {
    Shape shape = Choice::kShape;
    shape.windows = false;
    return shape;
  }();
};

/// The same choice for launches of sm90_prefill_fixed that may split.
template <class Choice>
struct FromList {
  static constexpr Shape kShape = [] {
    Shape shape = Choice::kShape;
    shape.listed = true;
    return shape;
  }();
};

template <class Choice>
cudaError_t launch_choice(const Maps& maps, const KernelParams& p, int blocks, cudaStream_t stream) {
  constexpr Shape kShape = Choice::kShape;
  constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) + 1024;
  static_assert(kSmemBytes <= kSharedBytes);
  constexpr bool kOnlyListed = kShape.split && kShape.wide;  // launches without a list split few rows only
  auto* kernel = prefill_kernel<std::conditional_t<kOnlyListed, FromList<Choice>, Choice>>;
  if constexpr (Derived<kShape>::kTakesWindows) {
    if (p.reach_left == kFar) kernel = prefill_kernel<WithoutWindows<Choice>>;
  } else if (p.reach_left != kFar) {
    return cudaErrorNotSupported;  // results would be wrong; choose_instance() prevents it
  }
  if constexpr (kShape.split && !kShape.cascade) {
    if (p.split_tiles != nullptr) kernel = prefill_kernel<FromList<Choice>>;
  }
  // Early beside `prepare`: not where there is none, nor with draw_first, which waits for an event instead.
  const bool early = !p.draw_first && !p.alone;
  return hopper::launch_as(early ? hopper::Start::kEarly : hopper::Start::kInOrder, kernel, blocks,
                           Derived<kShape>::kThreads, kSmemBytes, stream, maps, p);
}

template <class Choice>
constexpr Instance make_instance(decltype(Instance::launch) launch) {
  return describe<Choice::kShape>(launch);
}

}  // namespace attnbench::sm90_prefill
