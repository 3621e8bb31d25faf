// A block's first tile if the lengths are as the host guessed: its copies are issued as soon as that is
// known.
#pragma once

#include "kernels/cuda/common/announce.cuh"
#include "kernels/cuda/common/row_map.cuh"
#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// The copies of the guessed first tile and of its queries. What they need is computed while the lengths are
/// in flight.
template <Shape kShape>
class FirstTile {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ FirstTile(const KernelParams& p, const Guess& guess, int lane)
      : lane_(lane), box_(lane * p.box_rows) {
    const int32_t key = guess.tile * kShape.tile_tokens + (issues() ? box_ : 0);
    valid_ = max(0, min(p.max_seqlen_k - key, p.box_rows));
    const KeyBounds seen = visible_keys_of_sequence(p.window_left, p.max_seqlen_q, p.max_seqlen_k);
    if (key + p.box_rows <= seen.begin) valid_ = 0;
    page_ = p.by_block_size.divide(key);
    row_ = p.block_table != nullptr ? key - page_ * p.block_size : key;
    key_ = key;
    tile_ = guess.tile;
    // Makes the compiler compute these here, not after the lengths have arrived.
    asm volatile("" : "+r"(valid_), "+r"(page_), "+r"(row_));
  }

  /// The number of this lane's page in the sequence.
  __device__ __forceinline__ int32_t page() const { return page_; }

  /// Issues the copies into the first slots of the rings, as a Producer does. One warp calls it. `sequence`
  /// has the guessed lengths. `block` holds this lane's page (KV that is not paged: the sequence's kv_block).
  /// `new_tokens` are the sequence's.
  __device__ __forceinline__ void load(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                       const CUtensorMap& map_v, const KernelParams& p,
                                       SharedMemory<kShape>& smem, int kv_head, const Sequence& sequence,
                                       int32_t block, const NewTokens<kShape.append>& new_tokens) const {
    int32_t row = row_ + sequence.kv_row;
    int32_t valid = valid_;
    bool has_new = false;
    if constexpr (kShape.append) {
      const int32_t old_len = new_tokens.old_len(sequence.k_len);
      valid = max(0, min(valid, old_len - key_));
      has_new = holds_new<kShape>(tile_, old_len, sequence.k_len);
    }
    hopper::Mbarrier& keys = landing_of_tile<kShape>(smem, 0, has_new);
    hopper::Mbarrier& values = landing_of_tile<kShape>(smem, 1, has_new);
    if (valid == 0) block = row = 0;
    if (lane_ == 0) {
      announce_queries<kShape>(landing_of_queries<kShape>(smem, 0),
                               D::kQChunks * p.max_rows * hopper::kChunkBytes);
#pragma unroll
      for (int c = 0; c < D::kQChunks; ++c) {
        hopper::tma_load(smem.q[0] + c * D::kQChunkBytes, map_q, {0, kv_head * p.group, sequence.q_begin, c},
                         landing_of_queries<kShape>(smem, 0));
      }
      keys.arrive_expecting(D::kSlotBytes);
      values.arrive_expecting(D::kSlotBytes);
    }
    __syncwarp();
    if (issues()) {
      const int32_t offset = box_ * (D::kKvChunks * D::kKvChunkBytes);
      const hopper::RowMap k{map_k, p.k_rows}, v{map_v, p.v_rows};
      k.load_once(smem.kv[0] + offset, k.chunk_of(kv_head), k.row_of(block, row), valid, keys);
      v.load_once(smem.kv[1] + offset, v.chunk_of(kv_head), v.row_of(block, row), valid, values);
    }
    __syncwarp();
  }

 private:
  __device__ __forceinline__ bool issues() const { return box_ < kShape.tile_tokens; }

  const int lane_;
  const int32_t box_;  ///< first row in the tile of this lane's copy
  int32_t valid_, page_, row_, key_, tile_;
};

}  // namespace attnbench::sm90_decode
