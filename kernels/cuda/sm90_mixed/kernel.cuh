// The kernel that prefills and decodes on every multiprocessor. Its blocks have sm90_prefill's warps and one
// more warpgroup, the guests (guest_consumer.cuh), which decodes beside them out of a ring of its own.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/common/launch_as.h"
#include "kernels/cuda/sm90_decode/producer.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"
#include "kernels/cuda/sm90_mixed/guest_consumer.cuh"
#include "kernels/cuda/sm90_mixed/instances.h"
#include "kernels/cuda/sm90_mixed/row_merger.cuh"
#include "kernels/cuda/sm90_prefill/consumer.cuh"
#include "kernels/cuda/sm90_prefill/producer.cuh"

namespace attnbench::sm90_mixed {

/// The choices of an instance.
struct Shape {
  DType dtype;
  int head_dim;
  int block_m;          ///< as in sm90_prefill::Shape
  int block_n;          ///< as in sm90_prefill::Shape
  int slots;            ///< as in sm90_decode::Shape
  int guest_registers;  ///< per thread of the warpgroup that decodes
  /// sm90_prefill's warps take the keys that all sequences share, and the guests each sequence's other keys.
  bool cascade = false;
};

/// Both kernels' shapes in one block.
template <Shape kShape>
struct Together {
  static constexpr sm90_prefill::Shape kPrefill{.dtype = kShape.dtype,
                                                .head_dim = kShape.head_dim,
                                                .block_m = kShape.block_m,
                                                .block_n = kShape.block_n,
                                                .q_stages = 1,
                                                .masked = true,
                                                .split = kShape.cascade,
                                                .cascade = kShape.cascade,
                                                .guest_registers = kShape.guest_registers};
  using P = sm90_prefill::Derived<kPrefill>;
  static constexpr sm90_decode::Shape kDecode{.dtype = kShape.dtype,
                                              .head_dim = kShape.head_dim,
                                              .row_tiles = 1,
                                              .slots = kShape.slots,
                                              .rows = kGuestRows,
                                              .joint = true,
                                              .block_warps = P::kThreads / 32,
                                              .suffixes = kShape.cascade};
  using D = sm90_decode::Derived<kDecode>;

  struct NoPrefix {};

  struct alignas(1024) SharedMemory {
    sm90_prefill::SharedMemory<kPrefill> prefill;
    sm90_decode::SharedMemory<kDecode> decode;
    GuestMemory<kShape.cascade> guests;
    [[no_unique_address]] std::conditional_t<kShape.cascade, sm90_prefill::CascadePrefix, NoPrefix> prefix;
  };
  static constexpr std::size_t kSmemBytes = sizeof(SharedMemory) + 1024;
  static_assert(kSmemBytes <= 227 * 1024);
};

/// The warp of the producers' warpgroup that loads for the decodes.
inline constexpr int kDecodeLoadingWarp = 2;
static_assert(kDecodeLoadingWarp != sm90_prefill::kSchedulingWarp);

/// Block x decodes part x / Hkv, counted from the last, of KV head x % Hkv, as in sm90_decode/kernel.cuh; it
/// decodes nothing if there are fewer parts. Dynamic shared memory: kSmemBytes. `Choice::kShape` is the Shape
/// (a type, because nvcc's launch stubs cannot spell a Shape).
template <class Choice>
__global__ void __launch_bounds__(Together<Choice::kShape>::P::kThreads, 1)
    together_kernel(const __grid_constant__ TogetherParams p) {
  using T = Together<Choice::kShape>;
  using P = typename T::P;
  using D = typename T::D;
  extern __shared__ uint8_t dynamic_smem[];
  const uint32_t offset = static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_smem));
  auto& smem = *reinterpret_cast<typename T::SharedMemory*>(dynamic_smem + (-offset & 1023u));

  // The shuffles tell the compiler that these are the same in all lanes.
  const int warp_group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    sm90_prefill::prefetch_maps(p.prefill_maps);
    smem.prefill.init_barriers();
    hopper::fence_barrier_init();
  }
  if (p.prefill.tokens_per_tile * p.prefill.heads_per_tile < T::kPrefill.block_m) {
    smem.prefill.clear_rows_from(p.prefill.tokens_per_tile * p.prefill.heads_per_tile);
  }
  if (warp >= D::kFirstConsumerWarp) {
    if (lane == 0) {
      smem.decode.init_barriers(warp - D::kFirstConsumerWarp);
      hopper::fence_barrier_init();
    }
    // Zeroes the rows of Q that no sequence of the launch has, and that no copy writes.
    auto* queries = reinterpret_cast<uint4*>(smem.decode.q);
    for (int i = threadIdx.x % 128; i < static_cast<int>(sizeof smem.decode.q / sizeof(uint4)); i += 128) {
      if (i / 8 % D::kRows >= p.decode.max_rows) queries[i] = uint4{};
    }
    hopper::fence_for_wgmma();
  }
  if constexpr (Choice::kShape.cascade) {
    const sm90_prefill::CascadePrefix prefix(p.prefill, T::kPrefill.block_n, lane);
    if (threadIdx.x == 0) {
      smem.decode.shared_keys = prefix.keys;
      smem.prefix = prefix;
    }
    smem.guests.finished.clear();
  }
  __syncthreads();

  const int kv_heads = p.decode.attention.num_heads_kv;
  const int part = p.decode.parts - 1 - static_cast<int>(blockIdx.x) / kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
  sm90_decode::Partition partition;
  bool decodes = false;
  if (part >= 0) {
    decodes = sm90_decode::find_start_in_block<T::kDecode>(p.decode, part, smem.decode, &partition);
  }

  if (warp_group == 0) {
    hopper::lower_register_limit<P::kProducerRegisters>();
    if (warp == 0) {
      sm90_prefill::produce<T::kPrefill>(p.prefill_maps, p.prefill, smem.prefill, lane);
    } else if (warp == sm90_prefill::kSchedulingWarp) {
      sm90_prefill::schedule<T::kPrefill>(p.prefill, smem.prefill, lane);
    } else if (warp == kDecodeLoadingWarp && decodes) {
      sm90_decode::PagesAhead pages(p.decode, lane);
      sm90_decode::FirstProducer<T::kDecode>(p.decode_maps.q, p.decode_maps.k, p.decode_maps.v, p.decode,
                                             smem.decode, kv_head, lane, pages)
          .run(partition, part, true, smem.decode.start, false);
    }
  } else if (warp_group <= P::kConsumers) {
    hopper::raise_register_limit<P::kConsumerRegisters>();
    sm90_prefill::Consumer<T::kPrefill>(p.prefill, smem.prefill, warp_group - 1).run();
    if constexpr (Choice::kShape.cascade) {
      // The producers' warpgroup comes before the consumers.
      merge_finished_rows<T::kPrefill>(p.prefill, smem.prefix, smem.guests.finished, kv_head, warp - 4, lane);
    }
  } else {
    hopper::lower_register_limit<Choice::kShape.guest_registers>();
    if (decodes) GuestConsumer<T::kDecode>(p.decode, smem.decode, smem.guests, kv_head).run();
    if constexpr (Choice::kShape.cascade) {
      if (threadIdx.x % 128 == 0) smem.guests.finished.add(FinishedSuffixes::kNoMore);
    }
  }
}

template <class Choice>
cudaError_t launch_choice(const TogetherParams& p, int blocks, cudaStream_t stream) {
  using T = Together<Choice::kShape>;
  // Early beside `prepare`. A cascade has none, and its blocks wait for others.
  const auto start = Choice::kShape.cascade ? hopper::Start::kAllAtOnce : hopper::Start::kEarly;
  return hopper::launch_as(start, together_kernel<Choice>, blocks, T::P::kThreads, T::kSmemBytes, stream, p);
}

template <class Choice>
constexpr Instance make_instance(decltype(Instance::launch) launch) {
  constexpr Shape kShape = Choice::kShape;
  using T = Together<kShape>;
  return {kShape.dtype, kShape.head_dim, sm90_prefill::describe<T::kPrefill>(nullptr),
          sm90_decode::describe<T::kDecode>(nullptr), launch};
}

}  // namespace attnbench::sm90_mixed
