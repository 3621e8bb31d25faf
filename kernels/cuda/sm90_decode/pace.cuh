// Keeps the blocks of a long launch in step.
#pragma once

#include <type_traits>

#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/step.h"

namespace attnbench::sm90_decode {

/// Multiprocessors read from memory at rates that differ by some per cent. Left to themselves, the last
/// blocks end alone, too few to draw the full bandwidth, and the heads of a part read the same pages at
/// different times. So blocks count their *steps*, of some 128 KiB each, in one place, and a block that is
/// ahead of the mean holds its loads back. No block waits for another, and no result depends on it, only
/// time.
/// The counter needs no reset. At its end a block adds what its steps lack of its share of 2^32, so that a
/// launch leaves 0. From then on the other blocks are behind the mean, and none holds back any more, because
/// the end is near. One warp of a block uses it.
template <Shape kShape>
class Pace {
  using D = Derived<kShape>;
  static constexpr int32_t kStepTiles = kStepBytes / (2 * D::kSlotBytes);
  /// Least steps of a part for which blocks keep in step. Shorter parts have too little time to gain.
  static constexpr int32_t kLeastSteps = 24;
  /// How long to hold back per step of lead, and at most, in steps. A lead is one step old when it is known, so
  /// holding back all of it at once would be too much.
  static constexpr float kHeldBack = 0.5f, kMost = 0.25f;

 public:
  __device__ __forceinline__ Pace(const KernelParams& p, const Partition& partition, int lane)
      : p_(p), partition_(partition), lane_(lane) {}

  /// Called for a sequence's first tile, or for the zeros of a sequence without tiles.
  __device__ __forceinline__ void add_sequence() { ++tiles_; }

  /// Called before the copies of another tile are issued.
  __device__ __forceinline__ void add_tile() {
    if (__builtin_expect(++tiles_ >= next_, 0)) add_step();
  }

  /// Called once by every block of the launch.
  __device__ __forceinline__ void end() {
    if (!is_long() || lane_ != 0) return;
    const uint32_t share = ~0u / blocks();
    const bool takes_rest = blockIdx.x + blockIdx.y == 0;
    count((takes_rest ? 0 - share * (blocks() - 1) : share) - steps());
  }

 private:
  __device__ __forceinline__ bool is_long() const {
    return partition_.units_per_part << p_.unit_shift >= kLeastSteps * kStepTiles;
  }
  __device__ __forceinline__ static uint32_t blocks() { return gridDim.x * gridDim.y; }
  __device__ __forceinline__ uint32_t steps() const { return next_ / kStepTiles - 1; }  ///< counted so far

  __device__ __forceinline__ void add_step() {
    next_ += kStepTiles;
    if (!is_long()) return;
    const float mean = static_cast<float>(__shfl_sync(~0u, counted_, 0)) / static_cast<float>(blocks());
    // The count is one step old, and blocks are half a step further than they have counted. A quarter is
    // taken off these 1.5 steps, so that a block that goes with the mean holds back a little.
    const float ahead = static_cast<float>(steps()) - 1.25f - mean;
    if (ahead > 0) __nanosleep(static_cast<uint32_t>(fminf(ahead * kHeldBack, kMost) * p_.step_ns));
    if (lane_ == 0) counted_ = count(1);
  }

  /// The atomic is relaxed, because no other data depends on it. PTX ISA, "atom".
  __device__ __forceinline__ uint32_t count(uint32_t steps) const {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(p_.steps), "r"(steps)
                 : "memory");
    return before;
  }

  const KernelParams& p_;
  const Partition& partition_;
  const int lane_;
  int32_t tiles_ = 0;
  int32_t next_ = kStepTiles;  ///< the tile that ends a step
  uint32_t counted_ = 0;       ///< lane 0: the steps of all blocks when this one counted its last
};

/// For warps that do not hold back.
struct NoPace {
  __device__ __forceinline__ NoPace() {}
  __device__ __forceinline__ NoPace(const KernelParams&, const Partition&, int) {}
  __device__ __forceinline__ void add_sequence() {}
  __device__ __forceinline__ void add_tile() {}
  __device__ __forceinline__ void end() {}
};

/// The pace of the warp that loads keys.
template <Shape kShape>
using PaceOf = std::conditional_t<Derived<kShape>::kKeepsStep, Pace<kShape>, NoPace>;

}  // namespace attnbench::sm90_decode
