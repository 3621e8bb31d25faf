// Scales of int8 keys: one per (row, KV head), on their way to shared memory.
//
// They lie in the cache's order, so that the scale of a row is found like the row. A warp of its own walks the
// part's sequences like a producer and copies them by cp.async, four bytes a key. It runs up to kScaleStages
// tiles ahead, because it must not delay the copies of keys and values.
#pragma once

#include "kernels/cuda/sm90_decode/producer.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

template <Shape kShape>
class ScaleProducer : public Follower<kShape, Loads::kScales, ScaleProducer<kShape>> {
  using Base = Follower<kShape, Loads::kScales, ScaleProducer<kShape>>;
  friend Producer<kShape, Loads::kScales, ScaleProducer<kShape>>;

 public:
  __device__ __forceinline__ ScaleProducer(const CUtensorMap& map_k, const CUtensorMap& map_v,
                                           const KernelParams& p, SharedMemory<kShape>& smem, int kv_head,
                                           int lane, PagesAhead& pages)
      : Base(map_k, map_v, p, smem, kv_head, lane, pages, {}),
        box_shift_(p.box_shift),
        of_head_(p.attention.k_descale + kv_head * p.attention.k_descale_stride_head) {}

 private:
  /// Issues the copies of a tile's scales. Each lane gives the box that it has of the tile: `valid` rows from
  /// row `row` of block `block` on. Keys that are not valid get 0, and no address of theirs is read.
  __device__ __forceinline__ void load_scales(int32_t block, int32_t row, int32_t valid) {
    const AttentionParams& a = this->p_.attention;
    KeyScales<kShape>& scales = this->smem_.key_scales;
    const int64_t of_box = block * a.k_descale_stride_block + row * a.k_descale_stride_outer;
    scales.ring.await_empty(place_);
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(scales.scale[place_.stage()]));
#pragma unroll
    for (int32_t token = this->lane_; token < kShape.tile_tokens; token += 32) {
      const int32_t owner = token >> box_shift_;
      const int32_t inside = token - (owner << box_shift_);
      const int64_t offset = __shfl_sync(~0u, of_box, owner) + inside * a.k_descale_stride_outer;
      const bool exists = inside < __shfl_sync(~0u, valid, owner);
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                       to + token * static_cast<uint32_t>(sizeof(float))),
                   "l"(of_head_ + (exists ? offset : 0)), "r"(exists ? 4 : 0)
                   : "memory");
    }
    // The arrival happens when this lane's copies have landed. PTX ISA, "cp.async.mbarrier.arrive".
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(&scales.ring.full_at(place_))))
                 : "memory");
    place_.advance();
  }

  const int32_t box_shift_;
  const float* const of_head_;  ///< scales of this KV head
  hopper::RingPlace<kScaleStages> place_;
};

}  // namespace attnbench::sm90_decode
