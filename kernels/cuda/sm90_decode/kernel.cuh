// The kernel: blocks of one or two producer warps and four or eight consumer warps, each block a part of one
// KV head.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/append_warp.cuh"
#include "kernels/cuda/sm90_decode/consumer.cuh"
#include "kernels/cuda/sm90_decode/first_tile.cuh"
#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_decode/producer.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// map_q: (64 channels, head, token, chunk); map_k, map_v: row-window maps. Block (x, y) is part y, counted
/// from the last, of KV head x: neighbouring blocks read neighbouring heads of the same tokens at about the
/// same time, and the parts that a block may wait for (handover.cuh) began before it. Dynamic shared
/// memory: kSmemBytes. `Choice::kShape` is the Shape (a type, because nvcc's launch stubs cannot spell a
/// Shape).
template <class Choice>
__global__ void __launch_bounds__(Derived<Choice::kShape>::kThreads, Choice::kShape.blocks_per_sm)
    decode_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                  const __grid_constant__ CUtensorMap map_v, const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<SharedMemory<kShape>*>(dynamic_smem + (-offset & 1023u));

  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the same in all lanes
  const int lane = threadIdx.x % 32;
  const int32_t kv_head = blockIdx.x;
  const int32_t part = static_cast<int32_t>(gridDim.y) - 1 - blockIdx.y;

  // The lengths are asked for first; what needs none happens while they are on their way.
  const bool small = p.batch <= kWarpBatch;
  Entry mine{};
  NewTokens<kShape.append> new_tokens;
  if (warp < Derived<kShape>::kProducerWarps && small) mine = load_entry_of_lane(p, lane);
  PageWindow pages(p, lane);
  const Guess guess = guess_start(p, part);
  if (warp < Derived<kShape>::kProducerWarps) pages.expect(guess, kShape.tile_tokens);
  const FirstTile<kShape> first_tile(p, guess, lane);
  if constexpr (kShape.append) {
    if (warp < Derived<kShape>::kProducerWarps && small) {
      new_tokens.load_of_lane(p, p.batch == 1 ? 0 : lane);
    }
  }
  if (warp >= Derived<kShape>::kFirstConsumerWarp && lane == 0) {
    smem.init_barriers(warp - Derived<kShape>::kFirstConsumerWarp);
    hopper::fence_barrier_init();
  }
  if constexpr (kShape.append) {
    if (warp == Derived<kShape>::kProducerWarps) init_append_barriers<kShape>(smem, lane);
  }
  __syncthreads();  // the barriers are there
  if (threadIdx.x == 32 * Derived<kShape>::kFirstConsumerWarp + 32) {
    hopper::prefetch_map(map_q);
    hopper::prefetch_map(map_k);
    hopper::prefetch_map(map_v);
  }

  Partition partition;
  bool work = false;
  if (!small) work = find_start_in_block<kShape>(p, part, smem, &partition);
  if (warp < Derived<kShape>::kProducerWarps) {
    Start start{};
    bool begun = false;
    if (Derived<kShape>::kProducerWarps == 1 && small && is_as_guessed(p, mine, lane)) {
      partition = p.guessed_partition;
      start = {guess.b, guess.first_unit, from_lane(p, mine, guess.b % 32)};
      work = guess.b < p.batch;
      if (work) {
        const int32_t block =
            p.block_table != nullptr ? pages.guessed_block_of(first_tile.page()) : start.sequence.kv_block;
        if constexpr (kShape.append) new_tokens.take_from_lane(guess.b % 32);
        first_tile.load(map_q, map_k, map_v, p, smem, kv_head, start.sequence, block, new_tokens);
      }
      begun = work;
    } else if (small) {
      work = find_start_in_warp<kShape>(p, part, mine, lane, &partition, &start);
      if constexpr (kShape.append) {
        if (work) new_tokens.take_from_lane(start.b);
      }
    } else if (work) {
      start = smem.start;
      if constexpr (kShape.append) new_tokens.load(p, start.b);
    }
    if (warp == 0) {
      FirstProducer<kShape>(map_q, map_k, map_v, p, smem, kv_head, lane, pages, new_tokens)
          .run(partition, part, work, start, begun);
    } else {
      ValueProducer<kShape>(map_k, map_v, p, smem, kv_head, lane, pages, new_tokens)
          .run(partition, part, work, start);
    }
  } else if (kShape.append && warp < Derived<kShape>::kFirstConsumerWarp) {
    if constexpr (kShape.append) AppendWarp<kShape>(p, smem, kv_head, lane).run(part, guess);
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
  // Blocks that wait for others (handover.cuh) must all have a place at once.
  if (Derived<Choice::kShape>::kFirstWaits && !p.split_every_unit && p.parts > 1) {
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
constexpr Instance make_instance() {
  return describe<Choice::kShape>(launch_choice<Choice>);
}

}  // namespace attnbench::sm90_decode
