// How the few blocks that share a sequence hand their results to one of them. There are no counters and no
// fences: each word is its own flag.
//
// A *state* is four neighbouring channels of a row's normalised O, and the row's LSE in base 2. A *place* in
// global memory has room for one state. Its words hold kAbsent until a thread leaves a state there. The thread
// that waits for the state sets them to kAbsent again when it has taken it, so between launches all places are
// absent.
// Loads and stores are relaxed, at GPU scope (PTX ISA, "Memory Consistency Model"), because no word tells
// anything about another.
//
// The block of a sequence's first split waits for those of the later parts, as the last thing that it does.
// Those wait only for still later ones, if at all. So no wait is endless if all blocks run at once.
// Cooperative launches guarantee that, so launches that may wait are cooperative, with at most one block per
// multiprocessor.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/common/absent.cuh"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/common/softmax.cuh"

namespace attnbench::sm90_decode {

using hopper::kAbsent;
using hopper::lse2_of;
using hopper::OnlineSoftmax;
using hopper::present;
using hopper::reference_of;

/// Most states that a block waits for. Polling more of them takes longer than counting arrivals.
inline constexpr int kMostStates = 4;

/// Addresses of a place: O by channel, and the LSE once for each four channels.
struct StatePlace {
  float* out;
  float* lse;
};

__device__ __forceinline__ void store_state(const StatePlace& place, const uint32_t (&o)[4], uint32_t lse2) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(place.out), "r"(o[0]), "r"(o[1]),
               "r"(o[2]), "r"(o[3])
               : "memory");
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(place.lse), "r"(lse2) : "memory");
}

__device__ __forceinline__ void load_state(const StatePlace& place, uint32_t (&o)[4], uint32_t& lse2) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3])
               : "l"(place.out)
               : "memory");
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(lse2) : "l"(place.lse) : "memory");
}

/// Leaves a state for the block that merges.
__device__ __forceinline__ void leave_state(const StatePlace& place, const float (&o)[4], float lse2) {
  store_state(place, {present(o[0]), present(o[1]), present(o[2]), present(o[3])}, present(lse2));
}

/// Whether some word of a state is kAbsent, which is the greatest word.
__device__ __forceinline__ bool is_absent(const uint32_t (&o)[4], uint32_t lse2) {
  return max(max(max(o[0], o[1]), max(o[2], o[3])), lse2) == kAbsent;
}

/// Waits for states and merges them into `o` and `lse2`, in their order. 1 <= `count` <= kMostStates; the
/// first is at `place`, each further one `stride` states on. With ATTNBENCH_TRAP_ON_HANG an endless wait
/// faults, as in Mbarrier::wait.
__device__ __forceinline__ void take_states(const StatePlace& place, int64_t stride, int count, float (&o)[4],
                                            float& lse2) {
  uint32_t word[kMostStates][4], lse_word[kMostStates];
#pragma unroll
  for (int j = 0; j < kMostStates; ++j) {  // states past `count` have weight 0
    lse_word[j] = __float_as_uint(-INFINITY);
#pragma unroll
    for (int c = 0; c < 4; ++c) word[j][c] = 0;
  }
#ifdef ATTNBENCH_TRAP_ON_HANG
  uint32_t tries = 0;
#endif
  for (uint32_t absent = (1u << count) - 1; absent != 0;) {
#ifdef ATTNBENCH_TRAP_ON_HANG
    if (++tries == 1u << 22) asm volatile("st.global.u32 [%0], %1;" ::"l"(0ull), "r"(tries) : "memory");
#endif
#pragma unroll
    for (int j = 0; j < kMostStates; ++j) {
      if (absent >> j & 1) {
        load_state({place.out + j * stride * 4, place.lse + j * stride}, word[j], lse_word[j]);
      }
    }
    absent = 0;
#pragma unroll
    for (int j = 0; j < kMostStates; ++j) absent |= is_absent(word[j], lse_word[j]) ? 1u << j : 0;
  }
  float top = lse2;
#pragma unroll
  for (int j = 0; j < kMostStates; ++j) top = fmaxf(top, __uint_as_float(lse_word[j]));
  const float base = reference_of(top);
  float sum = hopper::exp2_approx(lse2 - base);
#pragma unroll
  for (int c = 0; c < 4; ++c) o[c] *= sum;
#pragma unroll
  for (int j = 0; j < kMostStates; ++j) {
    const float weight = hopper::exp2_approx(__uint_as_float(lse_word[j]) - base);
    sum += weight;
#pragma unroll
    for (int c = 0; c < 4; ++c) o[c] = fmaf(weight, __uint_as_float(word[j][c]), o[c]);
  }
  const float normaliser = sum == 0.0f ? 0.0f : hopper::reciprocal_approx(sum);
#pragma unroll
  for (int c = 0; c < 4; ++c) o[c] *= normaliser;
  lse2 = lse2_of(base, sum);
}

/// Makes the places of taken states absent again, for the next launch.
__device__ __forceinline__ void clear_states(const StatePlace& place, int64_t stride, int count) {
#pragma unroll
  for (int j = 0; j < kMostStates; ++j) {
    if (j >= count) break;
    store_state({place.out + j * stride * 4, place.lse + j * stride}, {kAbsent, kAbsent, kAbsent, kAbsent},
                kAbsent);
  }
}

}  // namespace attnbench::sm90_decode
