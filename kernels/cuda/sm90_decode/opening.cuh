// How a block finds where its part of the work begins, and a producer warp its first tile.
//
// Lengths are in memory, and a launch of a few microseconds cannot afford to wait for them twice. So when the
// block begins, each warp requests what it needs by the host's guess: every sequence is as long as the
// longest. Then there are three cases:
//   the guess is right      the producer issues the first tile's copies at once;
//   at most 32 sequences    the producer finds the part's beginning by itself (find_start_in_warp);
//   more                    all threads find it together (find_start_in_block).
#pragma once

#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/first_tile.cuh"
#include "kernels/cuda/sm90_decode/producer.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// The opening of part `part`. All warps of a block construct it, but only those that walk the sequences hold
/// lengths and pages.
template <Shape kShape>
class Opening {
  using D = Derived<kShape>;

 public:
  /// Requests lengths and pages, and meanwhile computes what needs neither.
  __device__ __forceinline__ Opening(const KernelParams& p, int32_t part, int warp, int lane)
      : p_(p),
        part_(part),
        lane_(lane),
        small_(p.batch <= kWarpBatch),
        mine_(warp < D::kWalkingWarps && small_ ? load_entry_of_lane(p, lane) : Entry{}),
        pages_(p, lane),
        guess_(guess_start(p, part)),
        first_tile_(expect_pages(warp), guess_, lane) {
    if constexpr (kShape.append) {
      if (warp < D::kProducerWarps && small_) new_tokens_.load_of_lane(p, p.batch == 1 ? 0 : lane);
    }
  }

  /// Finds the part's beginning in a batch of more than 32 sequences. All threads of the block call it.
  __device__ __forceinline__ void find_in_block(SharedMemory<kShape>& smem) {
    if (!small_) work_ = find_start_in_block<kShape>(p_, part_, smem, &partition_);
  }

  /// Finds the part's beginning in any batch. If the guess is right, also issues the copies of the first tile
  /// and of its queries. Each warp that walks the sequences calls it, after find_in_block.
  __device__ __forceinline__ void begin(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                        const CUtensorMap& map_v, SharedMemory<kShape>& smem, int32_t kv_head,
                                        int warp) {
    const bool loads_all = D::kProducerWarps == 1 && (D::kScaleWarps == 0 || warp == 0);
    if (loads_all && small_ && is_as_guessed(p_, mine_, lane_)) {
      partition_ = p_.guessed_partition;
      start_ = {guess_.b, guess_.first_unit, from_lane(p_, mine_, guess_.b % 32)};
      work_ = guess_.b < p_.batch;
      if (work_) load_first_tile(map_q, map_k, map_v, smem, kv_head);
      begun_ = work_;
    } else if (small_) {
      work_ = find_start_in_warp<kShape>(p_, part_, mine_, lane_, &partition_, &start_);
      if constexpr (kShape.append) {
        if (work_) new_tokens_.take_from_lane(start_.b);
      }
    } else if (work_) {
      start_ = smem.start;
      if constexpr (kShape.append) new_tokens_.load(p_, start_.b);
    }
  }

  __device__ __forceinline__ const Guess& guess() const { return guess_; }
  __device__ __forceinline__ PagesAhead& pages() { return pages_; }
  __device__ __forceinline__ const NewTokens<kShape.append>& new_tokens() const { return new_tokens_; }
  __device__ __forceinline__ const Partition& partition() const { return partition_; }
  __device__ __forceinline__ const Start& start() const { return start_; }
  __device__ __forceinline__ bool work() const { return work_; }    ///< the part has work
  __device__ __forceinline__ bool begun() const { return begun_; }  ///< its first tile's copies are issued

 private:
  __device__ __forceinline__ const KernelParams& expect_pages(int warp) {
    if (warp < D::kWalkingWarps) pages_.expect(guess_, kShape.tile_tokens);
    return p_;
  }

  __device__ __forceinline__ void load_first_tile(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                                  const CUtensorMap& map_v, SharedMemory<kShape>& smem,
                                                  int32_t kv_head) {
    const int32_t block =
        p_.block_table != nullptr ? pages_.guessed_block_of(first_tile_.page()) : start_.sequence.kv_block;
    if constexpr (kShape.append) new_tokens_.take_from_lane(guess_.b % 32);
    first_tile_.load(map_q, map_k, map_v, p_, smem, kv_head, start_.sequence, block, new_tokens_);
  }

  const KernelParams& p_;
  const int32_t part_;
  const int lane_;
  const bool small_;  ///< a warp can hold the batch, a sequence per lane
  Entry mine_;
  PagesAhead pages_;
  Guess guess_;
  FirstTile<kShape> first_tile_;
  NewTokens<kShape.append> new_tokens_;
  Partition partition_{};
  Start start_{};
  bool work_ = false, begun_ = false;
};

}  // namespace attnbench::sm90_decode
