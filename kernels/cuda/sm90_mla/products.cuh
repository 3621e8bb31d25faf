// Instructions that only this kernel uses: a product of 32 columns, and those between the blocks of a
// cluster.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace attnbench::sm90_mla {

/// d (64 x 32) += A (64 x 16) B (16 x 32), both K-major in shared memory. accumulate = 0 ignores what d held.
template <DType kType>
__device__ __forceinline__ void wgmma_m64n32(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
#define ATTNBENCH_M64N32(type)                                                                               \
  asm volatile(                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                            \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;}\n"                \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
      : "l"(a), "l"(b), "r"(accumulate))
  if constexpr (kType == DType::kBf16) {
    ATTNBENCH_M64N32("bf16");
  } else {
    ATTNBENCH_M64N32("f16");
  }
#undef ATTNBENCH_M64N32
}

/// The address, for the whole cluster, of what lies at `here` in block `rank`. PTX ISA, "mapa".
__device__ __forceinline__ uint32_t address_in_cluster(const void* here, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(here))), "r"(rank));
  return there;
}

/// Stores four words at an address of the cluster. Their bytes count on the barrier `done` of the same block.
/// PTX ISA, "st.async".
__device__ __forceinline__ void store_in_cluster(uint32_t address, const float* words, uint32_t done) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address),
      "f"(words[0]), "f"(words[1]), "f"(words[2]), "f"(words[3]), "r"(done)
      : "memory");
}

/// Arrives at a barrier of the cluster, to say that this warp has read what may now be overwritten. Nothing
/// that it wrote is handed over, so the release has the scope of the block: at the scope of the cluster it is
/// a memory barrier of the GPU, which takes over a microsecond. PTX ISA, "mbarrier.arrive".
__device__ __forceinline__ void arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Mbarrier::wait for what other blocks of the cluster do: acquires at cluster scope.
__device__ __forceinline__ void await_cluster(hopper::Mbarrier& barrier, uint32_t parity) {
  for ([[maybe_unused]] uint32_t tries = 0;; ++tries) {
    if (cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster, &barrier.word,
                                            parity)) {
      return;
    }
#ifdef ATTNBENCH_TRAP_ON_HANG
    if (tries == 1u << 24) asm volatile("st.global.u32 [%0], %1;" ::"l"(0ull), "r"(tries) : "memory");
#endif
  }
}

/// Waits until all threads of the cluster have come here. It orders the initialisation of barriers, which
/// fence_barrier_init() released, and nothing else.
__device__ __forceinline__ void cluster_meets() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

}  // namespace attnbench::sm90_mla
