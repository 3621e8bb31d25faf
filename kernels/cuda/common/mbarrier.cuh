// Barriers in shared memory that count arrivals and bytes. PTX ISA, "Parallel Synchronization: mbarrier".
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace attnbench::hopper {

/// One mbarrier. A phase ends when `arrivals` threads have arrived and all expected bytes have landed; phases
/// alternate between parity 0 and 1, starting with 0.
struct Mbarrier {
  uint64_t word;

  /// One thread calls it before any other use. fence_barrier_init() and a barrier of the block must follow.
  __device__ __forceinline__ void init(uint32_t arrivals) { cuda::ptx::mbarrier_init(&word, arrivals); }

  /// Arrives with release semantics: threads that wait for the phase see what this thread wrote before.
  __device__ __forceinline__ void arrive() { static_cast<void>(cuda::ptx::mbarrier_arrive(&word)); }

  /// Arrives and announces `bytes` that the copy engine will deliver in this phase.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
    static_cast<void>(cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                                           cuda::ptx::space_shared, &word, bytes));
  }

  /// Waits for the end of the phase of parity `parity`, with acquire semantics. On a fresh barrier parity 1
  /// counts as ended. With ATTNBENCH_TRAP_ON_HANG an endless wait faults by a store to address 0. A trap
  /// instruction would make ptxas disregard the register limits of setmaxnreg.
  __device__ __forceinline__ void wait(uint32_t parity) {
#ifdef ATTNBENCH_TRAP_ON_HANG
    for (uint32_t tries = 0; !cuda::ptx::mbarrier_try_wait_parity(&word, parity); ++tries) {
      if (tries == 1u << 24) asm volatile("st.global.u32 [%0], %1;" ::"l"(0ull), "r"(tries) : "memory");
    }
#else
    while (!cuda::ptx::mbarrier_try_wait_parity(&word, parity)) {
    }
#endif
  }
};
static_assert(sizeof(Mbarrier) == 8);

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
}

}  // namespace attnbench::hopper
