// Rings of buffers in shared memory between warps that fill them and warps that read them.
#pragma once

#include "kernels/cuda/common/mbarrier.cuh"

namespace attnbench::hopper {

/// A place in a ring of kStages buffers: which buffer, and the parity of its current round.
template <int kStages>
struct RingPlace {
  uint32_t count = 0;  ///< buffers passed so far

  __device__ __forceinline__ uint32_t stage() const { return count % kStages; }
  __device__ __forceinline__ uint32_t parity() const { return count / kStages % 2; }
  __device__ __forceinline__ void advance() { ++count; }
};

/// The barriers of a ring. Its writers wait for `empty`, then announce bytes or arrive at `full`. A reader
/// waits for `full`, then releases the buffer.
template <int kStages>
struct Ring {
  using Place = RingPlace<kStages>;
  Mbarrier full[kStages], empty[kStages];

  /// Initialises the barriers of buffer `stage`: one thread, before any other use. `readers`: warps that
  /// release it; `writers`: arrivals that announce it.
  __device__ __forceinline__ void init(int stage, uint32_t readers, uint32_t writers = 1) {
    full[stage].init(writers);
    empty[stage].init(readers);
  }
  __device__ __forceinline__ Mbarrier& full_at(const Place& place) { return full[place.stage()]; }
  __device__ __forceinline__ void await_full(const Place& place) { full[place.stage()].wait(place.parity()); }
  /// A fresh ring is empty.
  __device__ __forceinline__ void await_empty(const Place& place) {
    empty[place.stage()].wait(place.parity() ^ 1);
  }
  /// Arrives once for a whole warp. All its lanes call it.
  __device__ __forceinline__ void release(const Place& place, int lane) {
    __syncwarp();  // the other lanes' reads come before the arrival that stands for them
    if (lane == 0) empty[place.stage()].arrive();
  }
};

}  // namespace attnbench::hopper
