// The widening warps of instances for e4m3 K and V. wgmma takes both operands in one type, so these warps
// write each tile that the copy engine brings once more in fp16, which holds every e4m3 number. Queries become
// fp16 too, in place.
#pragma once

#include "kernels/cuda/common/e4m3.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/producer.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_prefill {

/// One of the widening warps: for K or for V, and for a share of the queries. It follows the producer tile by
/// tile. Two warps for K, or for V, share every part of a tile: then its buffer is free again the sooner.
template <Shape kShape>
class Widener {
  using D = Derived<kShape>;
  static constexpr int kAtom = D::kAtomBytes;
  static constexpr int kHalfAtom = kAtom / 2;                       ///< 4 rows
  static constexpr int kAtoms = D::kHasWidenerGroup ? 1 : 2;        ///< widened at a time, as registers allow
  static constexpr int kPartBytes = D::template kPartBytes<false>;  // V's rows are as wide
  static constexpr float kLeastDescale = 1e-30f;
  static_assert(kKStages == D::kVStages && D::kLandedStages == D::kParts);

 public:
  __device__ __forceinline__ Widener(const KernelParams& p, SharedMemory<kShape>& smem, int warp, int lane)
      : p_(p), smem_(smem), warp_(warp), lane_(lane) {
    // An atom is 8 rows of 128 bytes, in which 16-byte unit u of row r lies at unit u ^ r. A lane widens unit
    // `unit` of row `row`, and of row + 4, to two units. Eight neighbouring lanes have units 0..3 of one row
    // and 4..7 of the next, or the other way round: then neither their loads nor their stores share a bank.
    const int row = lane / 16 * 2 + lane / 4 % 2;
    const int unit = lane % 4 + 4 * (lane / 4 % 2 ^ lane / 8 % 2);
    from_ = row * hopper::kChunkBytes + (unit ^ row) * 16;
    to_ = row * hopper::kChunkBytes + (2 * (unit % 4) ^ row) * 16;
    is_high_ = unit / 4;
  }

  __device__ __forceinline__ void run() {
    for (;;) {
      smem_.landing.q_full[q_.stage()].wait(q_.parity());
      const WorkItem item = take_item(smem_.item[q_.stage()], lane_);
      if (item.n_begin < item.n_end && item.head >= 0) {
        const uint32_t signs = take_descales(item);
        widen_queries(hopper::shared_address(smem_.q[q_.stage()]), signs);
        hopper::fence_for_wgmma();
      }
      __syncwarp();
      if (lane_ == 0) smem_.q_ring.full[q_.stage()].arrive();
      if (item.head < 0) return;
      q_.advance();
#pragma unroll 1
      for (int tiles = item.n_end - item.n_begin; tiles > 0; --tiles) {
        if (warp_ % 2 == 1) {
          widen_tile(smem_.landing.v_ring, smem_.landed.v, smem_.v_ring, smem_.v);
        } else {
          widen_tile(smem_.landing.k_ring, smem_.landed.k, smem_.k_ring, smem_.k);
        }
        tile_.advance();
      }
    }
  }

 private:
  using Ring = hopper::Ring<kKStages>;

  /// The sequence of a tile: its row of the block table, or the one whose queries hold the tile's first.
  __device__ __forceinline__ int sequence_of(const WorkItem& item) const {
    if (p_.block_table != nullptr) return item.kv_base;
    int first = 0, count = p_.descales.batch;  // it is one of these
    while (count > 1) {
      const int step = (count + 31) / 32;
      const int b = first + lane_ * step;
      const bool begins = b < first + count && p_.descales.cu_seqlens_q[b] <= item.q_row;
      const int lanes = __popc(__ballot_sync(~0u, begins));  // at least one: the first lane's
      const int end = first + count;
      first += (lanes - 1) * step;
      count = min(step, end - first);
    }
    return first;
  }

  /// Publishes the scales of the tile. Returns what flips the signs of two queries if those of the descales of
  /// q and K differ, else 0: the softmax requires a factor above 0.
  __device__ __forceinline__ uint32_t take_descales(const WorkItem& item) {
    const DescaleParams& d = p_.descales;
    const int b = sequence_of(item);
    const int head = p_.by_head_tiles_per_kv_head.divide(item.head);
    float score = d.k[b * d.k_stride_outer + head * d.k_stride_head];
    if (d.q != nullptr) score *= d.q[b * d.q_stride_outer + head * d.q_stride_head];
    if (warp_ == 0 && lane_ == 0) {
      const float size = fabsf(score) < kLeastDescale ? kLeastDescale : fabsf(score);  // NaN stays NaN
      smem_.landing.scales[q_.stage()] = {size, d.v[b * d.v_stride_outer + head * d.v_stride_head]};
    }
    return score < 0.0f ? 0x80008000u : 0;
  }

  /// Converts this warp's share of a tile of queries to fp16, in place.
  __device__ __forceinline__ void widen_queries(uint32_t q, uint32_t signs) const {
    if (p_.q_chunks < D::kChunks) {
      // e4m3: chunk c of 128 channels lies where chunk kChunks / 2 + c of 64 channels will.
      constexpr int kShare = D::kQChunkBytes / D::kWideners;
#pragma unroll 1
      for (int c = 0; c < D::kChunks / 2; ++c) {
        const uint32_t from = q + (D::kChunks / 2 + c) * D::kQChunkBytes + warp_ * kShare;
        const uint32_t to = q + 2 * c * D::kQChunkBytes + warp_ * kShare;
#pragma unroll 1
        for (int i = 0; i < kShare; i += kAtom) widen<1, D::kQChunkBytes>(to + i, from + i, signs);
      }
    } else if (kShape.dtype == DType::kBf16 || signs != 0) {
      constexpr int kShare = D::kQBytes / D::kWideners;
      const uint32_t units = q + warp_ * kShare + lane_ * 16;
#pragma unroll 1
      for (int i = 0; i < kShare; i += 32 * 16) {
        const uint4 u = hopper::load_unit(units + i);
        hopper::store_unit(
            units + i,
            {hopper::to_fp16<kShape.dtype>(u.x) ^ signs, hopper::to_fp16<kShape.dtype>(u.y) ^ signs,
             hopper::to_fp16<kShape.dtype>(u.z) ^ signs, hopper::to_fp16<kShape.dtype>(u.w) ^ signs});
      }
    }
  }

  /// Widens this warp's share of the next tile of K or V.
  __device__ __forceinline__ void widen_tile(hopper::Ring<D::kLandedStages>& landed,
                                             const uint8_t (&from)[D::kLandedStages][kPartBytes], Ring& ring,
                                             uint8_t (&to)[kKStages][D::kKBytes]) {
    ring.await_empty(tile_);
    const uint32_t target = hopper::shared_address(to[tile_.stage()]);
    constexpr uint32_t kShare = kPartBytes / (D::kWideners / 2);
    const uint32_t mine = warp_ / 2 * kShare;
#pragma unroll 1
    for (uint32_t part = 0; part < D::kParts; ++part) {
      const hopper::RingPlace<D::kLandedStages> place{tile_.count * D::kParts + part};
      landed.await_full(place);
      const uint32_t source = hopper::shared_address(from[part]) + mine;
      const uint32_t wide = target + 2 * (part * kPartBytes + mine);
#pragma unroll 1
      for (uint32_t i = 0; i < kShare; i += kAtoms * kAtom) {
        widen<kAtoms, kAtom>(wide + 2 * i, source + i, 0);
      }
      hopper::fence_for_wgmma();  // also orders the reads before the copy that fills the buffer again
      landed.release(place, lane_);
    }
    if (lane_ == 0) ring.full[tile_.stage()].arrive();
  }

  /// Widens kAtoms neighbouring atoms of e4m3 to twice as many of fp16: channels 0..63 of each go to `to`, and
  /// channels 64..127 kHighBytes further. The source may be one of the two places. `signs` flips signs.
  template <int kAtoms, int kHighBytes>
  __device__ __forceinline__ void widen(uint32_t to, uint32_t from, uint32_t signs) const {
    // Rows 4..7 lie 4 rows further, with their units exchanged. Atoms are aligned to their size.
    const uint32_t source = from + from_;
    uint4 units[2 * kAtoms];
#pragma unroll
    for (int i = 0; i < 2 * kAtoms; ++i) {
      units[i] = hopper::load_unit((i % 2 == 0 ? source : source ^ 64) + i % 2 * kHalfAtom + i / 2 * kAtom);
    }
    __syncwarp();  // all lanes have loaded before the first one stores
    const uint32_t place = to + to_ + is_high_ * kHighBytes;
#pragma unroll
    for (int i = 0; i < 2 * kAtoms; ++i) {
      const uint32_t offset = i % 2 * kHalfAtom + i / 2 * 2 * kAtom;
      const uint32_t row = i % 2 == 0 ? place : place ^ 64;
      hopper::store_unit(row + offset, widened(units[i].x, units[i].y, signs));
      hopper::store_unit((row ^ 16) + offset, widened(units[i].z, units[i].w, signs));
    }
  }

  __device__ __forceinline__ static uint4 widened(uint32_t a, uint32_t b, uint32_t signs) {
    return {hopper::from_e4m3<0>(a) ^ signs, hopper::from_e4m3<1>(a) ^ signs, hopper::from_e4m3<0>(b) ^ signs,
            hopper::from_e4m3<1>(b) ^ signs};
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int warp_;  ///< 0 .. kWideners - 1; odd ones widen V
  const int lane_;
  uint32_t from_, to_;  ///< bytes from an atom to this lane's unit, and to the first of its two wide ones
  uint32_t is_high_;    ///< 1: its channels are of the upper 64
  hopper::RingPlace<kShape.q_stages> q_;
  hopper::RingPlace<kKStages> tile_;
};

}  // namespace attnbench::sm90_prefill
