// Scales of int8 keys: one per (row, KV head), on their way to shared memory.
//
// They lie in the cache's order, so that the scale of a row is found like the row. A lane copies the scales of
// some keys of a tile by cp.async, four bytes each. They arrive beside the copies of the keys, at a barrier of
// their own, because consumers need them only after the product.
#pragma once

#include "kernels/cuda/sm90_decode/shape.cuh"

namespace attnbench::sm90_decode {

/// The keys that a lane copies: `valid` rows from row `row` of block `block` on. They are rows lane * box_rows
/// and on of the tile.
struct Box {
  int32_t block;
  int32_t row;
  int32_t valid;
};

/// Issues the copies of the scales of tile `n` of the block, and the arrivals that follow them. All lanes of the
/// warp that loads keys call it, each with its box, after the slot of the tile's keys has become free. Keys that
/// are not valid get 0, and no address of theirs is read.
template <Shape kShape>
__device__ __forceinline__ void load_key_scales(const KernelParams& p, SharedMemory<kShape>& smem, uint32_t n,
                                                int32_t kv_head, int32_t lane, const Box& box) {
  static_assert(kShape.tile_tokens % 32 == 0);
  const AttentionParams& a = p.attention;
  const uint32_t stage = n % KeyScales<kShape>::kStages;
  float* const scales = smem.key_scales.scale[stage];
  const float* const head = a.k_descale + kv_head * a.k_descale_stride_head;
#pragma unroll
  for (int32_t token = lane; token < kShape.tile_tokens; token += 32) {
    const int32_t owner = token / p.box_rows;
    const int32_t inside = token % p.box_rows;
    const int32_t block = __shfl_sync(~0u, box.block, owner);
    const int32_t row = __shfl_sync(~0u, box.row, owner) + inside;
    const bool exists = inside < __shfl_sync(~0u, box.valid, owner);
    const float* from = head;
    if (exists) from += block * a.k_descale_stride_block + row * a.k_descale_stride_outer;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(scales + token))),
                 "l"(from), "r"(exists ? 4 : 0)
                 : "memory");
  }
  // The arrival happens when this lane's copies have landed. PTX ISA, "cp.async.mbarrier.arrive".
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(&smem.key_scales.full[stage])))
               : "memory");
}

}  // namespace attnbench::sm90_decode
