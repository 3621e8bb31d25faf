// The converting warps of instances for e4m3 K and V write tiles that the copy engine brings once more, as
// products take them.
//
// - Products in fp16: they *widen* tiles to fp16, which holds every e4m3 number, because wgmma takes both
//   operands in one type. 16-bit queries become fp16 too, in place.
// - P V in e4m3: they *transpose* V, because wgmma takes 8-bit operands K-major only.
#pragma once

#include "kernels/cuda/common/eight_bit.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/cuda/sm90_prefill/producer.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"

namespace attnbench::sm90_prefill {

/// One of the converting warps: for K or for V, and for a share of the queries. It follows the producer tile by
/// tile. All warps for K, or for V, share every part of a tile: then its buffer is free again the sooner.
template <Shape kShape>
class Converter {
  using D = Derived<kShape>;
  static constexpr int kAtom = D::kAtomBytes;
  static constexpr bool kHalfRows = D::kChunkBytes < hopper::kChunkBytes;  ///< of 64 bytes
  /// Bytes that a warp widens at a time, as registers allow: two units of 16 bytes per lane, or four.
  static constexpr int kStep = D::kProducerRegisters < 40 ? 1024 : 2048;
  static constexpr int kPartBytes = D::template kPartBytes<true>;  // K's rows are as wide
  static constexpr float kLeastDescale = 1e-30f;
  static constexpr uint32_t kSigns = kShape.e4m3_q ? 0x80808080u : 0x80008000u;  ///< of queries in a word

 public:
  __device__ __forceinline__ Converter(const KernelParams& p, SharedMemory<kShape>& smem, int warp, int lane)
      : p_(p), smem_(smem), warp_(warp), lane_(lane) {
    // A lane widens 16-byte unit `unit` of row `row` of an atom to two units. Eight neighbouring lanes have one
    // half of a row and the other half of another one: then neither their loads nor their stores share a bank.
    if constexpr (kHalfRows) {
      // An atom is 8 rows of 64 bytes, in which unit u of row r lies at unit u ^ r / 2 % 4. Eight lanes have
      // units 0, 1 of two rows and 2, 3 of the next two, or the other way round.
      const int row = lane / 16 * 4 + lane / 2 % 4;
      const int unit = lane % 2 + 2 * (lane / 4 % 2 ^ lane / 8 % 2);
      from_ = row * D::kChunkBytes + (unit ^ row / 2) * 16;
      to_ = row * D::kChunkBytes + (2 * (unit % 2) ^ row / 2) * 16 + unit / 2 * kAtom;
    } else {
      // An atom is 8 rows of 128 bytes, in which unit u of row r lies at unit u ^ r. Eight lanes have units 0..3
      // of one row and 4..7 of the next, or the other way round. A lane also has the same unit of row + 4.
      const int row = lane / 16 * 2 + lane / 4 % 2;
      const int unit = lane % 4 + 4 * (lane / 4 % 2 ^ lane / 8 % 2);
      from_ = row * D::kChunkBytes + (unit ^ row) * 16;
      to_ = row * D::kChunkBytes + (2 * (unit % 4) ^ row) * 16 + unit / 4 * kAtom;
    }
  }

  __device__ __forceinline__ void run() {
    for (;;) {
      smem_.landing.q_full[q_.stage()].wait(q_.parity());
      const WorkItem item = take_item(smem_.item[q_.stage()], lane_);
      if (item.n_begin < item.n_end && item.head >= 0) {
        const uint32_t signs = take_descales(item);
        convert_queries(hopper::shared_address(smem_.q[q_.stage()]), signs);
        hopper::fence_for_wgmma();
      }
      __syncwarp();
      if (lane_ == 0) smem_.q_ring.full[q_.stage()].arrive();
      if (item.head < 0) return;
      q_.advance();
#pragma unroll 1
      for (int tiles = item.n_end - item.n_begin; tiles > 0; --tiles) {
        if constexpr (kShape.e4m3_q) {
          transpose_tile();
        } else if (warp_ % 2 == 1) {
          widen_tile(smem_.landing.v_ring, smem_.landed_v.parts, smem_.v_ring, smem_.v, warp_ / 2);
        } else {
          widen_tile(smem_.landing.k_ring, smem_.landed_k.parts, smem_.k_ring, smem_.k, warp_ / 2);
        }
        ++tiles_;
      }
    }
  }

 private:
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

  /// Publishes the scales of the tile. Returns what flips the signs of a word of queries if those of the
  /// descales of q and K differ, else 0: the softmax requires a factor above 0.
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
    return score < 0.0f ? kSigns : 0;
  }

  /// Makes the factor of a tile's scores positive, and 16-bit queries fp16: this warp's share, in place.
  __device__ __forceinline__ void convert_queries(uint32_t q, uint32_t signs) const {
    constexpr DType kFrom = kShape.e4m3_q ? DType::kFp16 : kShape.dtype;  // fp16: as they are
    if (kFrom == DType::kFp16 && signs == 0) return;
    constexpr int kShare = D::kQBytes / D::kConverters;
    const uint32_t units = q + warp_ * kShare + lane_ * 16;
#pragma unroll 1
    for (int i = 0; i < kShare; i += 32 * 16) {
      const uint4 u = hopper::load_unit(units + i);
      hopper::store_unit(units + i,
                         {hopper::to_fp16<kFrom>(u.x) ^ signs, hopper::to_fp16<kFrom>(u.y) ^ signs,
                          hopper::to_fp16<kFrom>(u.z) ^ signs, hopper::to_fp16<kFrom>(u.w) ^ signs});
    }
  }

  /// Widens share `share` of the next tile of K or V.
  template <int kStages, int kBytes>
  __device__ __forceinline__ void widen_tile(hopper::Ring<D::kLandedStages>& landed,
                                             const uint8_t (&from)[D::kLandedStages][kPartBytes],
                                             hopper::Ring<kStages>& ring, uint8_t (&to)[kStages][kBytes],
                                             uint32_t share) {
    const hopper::RingPlace<kStages> tile{tiles_};
    ring.await_empty(tile);
    const uint32_t target = hopper::shared_address(to[tile.stage()]);
    constexpr uint32_t kShare = kPartBytes / D::kTileConverters;
    const uint32_t mine = share * kShare;
#pragma unroll 1
    for (uint32_t part = 0; part < D::kParts; ++part) {
      const hopper::RingPlace<D::kLandedStages> place{tiles_ * D::kParts + part};
      landed.await_full(place);
      const uint32_t source = hopper::shared_address(from[place.stage()]) + mine;
      const uint32_t wide = target + 2 * (part * kPartBytes + mine);
#pragma unroll 1
      for (uint32_t i = 0; i < kShare; i += kStep) widen(wide + 2 * i, source + i);
      hopper::fence_for_wgmma();  // also orders the reads before the copy that fills the buffer again
      landed.release(place, lane_);
    }
    if (lane_ == 0) ring.full[tile.stage()].arrive();
  }

  /// Widens kStep bytes of e4m3, which are whole atoms, to twice as many atoms of fp16: of each the channels of
  /// the first half, then those of the second.
  __device__ __forceinline__ void widen(uint32_t to, uint32_t from) const {
    constexpr int kUnits = kStep / 512;  // of a lane, each 512 bytes behind the one before
    // In 128-byte rows every other one is of rows 4..7, whose units are exchanged.
    const auto in_row = [](int i, uint32_t place) { return !kHalfRows && i % 2 == 1 ? place ^ 64 : place; };
    const uint32_t source = from + from_;
    uint4 units[kUnits];
#pragma unroll
    for (int i = 0; i < kUnits; ++i) units[i] = hopper::load_unit(in_row(i, source) + i * 512);
    const uint32_t place = to + to_;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const uint32_t offset = kHalfRows ? i * 2 * kAtom : i % 2 * (kAtom / 2) + i / 2 * 2 * kAtom;
      const uint32_t row = in_row(i, place);
      hopper::store_unit(row + offset, widened(units[i].x, units[i].y));
      hopper::store_unit((row ^ 16) + offset, widened(units[i].z, units[i].w));
    }
  }

  /// Writes V of the next KV block as V^T: a row of 128 bytes for each channel, with a byte for each key. Keys
  /// come in the order in which P has them (pack_weights, softmax.cuh): of each 32 keys, slots 4 * c .. 4 * c + 3
  /// of the first 16 hold keys 2 * c, 2 * c + 1, 8 + 2 * c, 9 + 2 * c; the second 16 likewise.
  ///
  /// An ldmatrix brings 32 keys of 16 channels: lane 4 * g + c gets channels 2 * g and 2 * g + 1 of keys 2 * c
  /// and 2 * c + 1 of each 8 keys. A stmatrix stores rows of 8 channels. So that these rows have different banks,
  /// a store takes the even channels of g = 0 .. 3 and the odd ones of g = 4 .. 7, or the other way round.
  __device__ __forceinline__ void transpose_tile() {
    const hopper::RingPlace<D::kVStages> tile{tiles_};
    const hopper::RingPlace<D::kLandedStages> landed{tiles_};
    smem_.v_ring.await_empty(tile);
    smem_.landing.v_ring.await_full(landed);
    constexpr int kUnits = D::kDimV / 16 / D::kConverters;  // of 16 channels, this warp's
    constexpr int kAtOnce = kUnits < 4 ? kUnits : 4;        // as registers allow
    constexpr int kUnitsOfChunk = D::kChunkBytes / 16;
    constexpr bool kOneChunk = D::template kLandedChunks<true> == 1;
    constexpr int kBlockBytes = 32 / hopper::kGroupRows * D::template kLandedGroupBytes<true>;  // of 32 keys
    const int matrix = lane_ / 8, matrix_row = lane_ % 8;
    const int channel = 2 * matrix_row + ((matrix_row >= 4) != (matrix % 2 == 1) ? 1 : 0);  // in the unit
    const uint32_t from = hopper::shared_address(smem_.landed_v.parts[landed.stage()]) +
                          lane_ / 8 * D::template kLandedGroupBytes<true> + lane_ % 8 * D::kChunkBytes;
    const int swizzle = kHalfRows ? lane_ / 2 % 4 : lane_ % 8;
    const uint32_t to =
        hopper::shared_address(smem_.v[tile.stage()]) + (warp_ * kUnits * 16 + channel) * hopper::kChunkBytes;
    const uint32_t first = lane_ < 16 ? 0x6420 : 0x7531;
    const uint32_t second = first ^ (0x6420 ^ 0x7531);
#pragma unroll 1
    for (int block = 0; block < kShape.block_n / 32; ++block) {
      const uint32_t slots = to + ((2 * block + matrix / 2) ^ channel % 8) * 16;
#pragma unroll 1
      for (int first_unit = 0; first_unit < kUnits; first_unit += kAtOnce) {
        uint32_t keys[kAtOnce][4];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const int unit = warp_ * kUnits + first_unit + u;
          const int chunk = kOneChunk ? 0 : unit / kUnitsOfChunk;
          hopper::load_matrices_transposed(keys[u], from + block * kBlockBytes + chunk * D::kAtomBytes +
                                                        ((unit - chunk * kUnitsOfChunk) ^ swizzle) * 16);
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const auto& k = keys[u];
          hopper::store_matrices(slots + (first_unit + u) * 16 * hopper::kChunkBytes,
                                 {__byte_perm(k[0], k[1], first), __byte_perm(k[0], k[1], second),
                                  __byte_perm(k[2], k[3], first), __byte_perm(k[2], k[3], second)});
        }
      }
    }
    hopper::fence_for_wgmma();  // also orders the reads before the copy that fills the buffer again
    smem_.landing.v_ring.release(landed, lane_);
    if (lane_ == 0) smem_.v_ring.full[tile.stage()].arrive();
  }

  __device__ __forceinline__ static uint4 widened(uint32_t a, uint32_t b) {
    return {hopper::from_e4m3<0>(a), hopper::from_e4m3<1>(a), hopper::from_e4m3<0>(b),
            hopper::from_e4m3<1>(b)};
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int warp_;  ///< 0 .. kConverters - 1; if K is converted too, even ones do it
  const int lane_;
  uint32_t from_, to_;  ///< bytes from an atom to this lane's unit, and to the first of its two wide ones
  uint32_t tiles_ = 0;  ///< of K or V so far
  hopper::RingPlace<kShape.q_stages> q_;
};

}  // namespace attnbench::sm90_prefill
