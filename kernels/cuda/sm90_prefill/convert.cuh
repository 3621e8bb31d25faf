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

/// Makes queries what products take: a share of each tile's, in one of kWarps warps.
template <Shape kShape, int kWarps>
class QueryConverter {
  using D = Derived<kShape>;
  static constexpr float kLeastDescale = 1e-30f;
  static constexpr uint32_t kSigns = kShape.e4m3_q ? 0x80808080u : 0x80008000u;  ///< of queries in a word
  static constexpr bool kWidens = !kShape.e4m3_q && kShape.dtype != DType::kFp16;
  static constexpr int kShare = D::kQBytes / kWarps;
  static constexpr int kUnits = kShare / 512;  ///< of 16 bytes, of a lane
  static_assert(kUnits % 2 == 0);

 public:
  __device__ __forceinline__ QueryConverter(const KernelParams& p, SharedMemory<kShape>& smem, int share,
                                            int lane)
      : p_(p), smem_(smem), share_(share), lane_(lane) {}

  /// Converts the queries of `item`, which have landed at `place`, and publishes them with the tile's scales.
  __device__ __forceinline__ void convert(const WorkItem& item,
                                          const hopper::RingPlace<kShape.q_stages>& place) const {
    if (item.n_begin < item.n_end && item.head >= 0) {
      const uint32_t queries =
          hopper::shared_address(smem_.q[place.stage()]) + share_ * kShare + lane_anew() * 16;
      const DescaleParams& d = p_.descales;
      const int b = sequence_of(item);
      const int head = p_.by_head_tiles_per_kv_head.divide(item.head);
      // They arrive while queries are converted.
      TileScales scales{d.k[b * d.k_stride_outer + head * d.k_stride_head],
                        d.v[b * d.v_stride_outer + head * d.v_stride_head]};
      const float of_q = d.q == nullptr ? 1.0f : d.q[b * d.q_stride_outer + head * d.q_stride_head];
      if constexpr (kWidens) widen(queries);
      scales.score *= of_q;
      if (__builtin_expect(scales.score < 0.0f, 0)) flip_signs(queries);
      if (share_ == 0 && lane_ == 0) {
        scales.score = fabsf(scales.score);
        if (scales.score < kLeastDescale) scales.score = kLeastDescale;  // NaN stays NaN
        smem_.landing.scales[place.stage()] = scales;
      }
      hopper::fence_for_wgmma();
    }
    __syncwarp();
    if (lane_ == 0) smem_.q_ring.full[place.stage()].arrive();
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

  /// Makes this warp's share of 16-bit queries fp16, in place. Loads are a step ahead of stores.
  __device__ __forceinline__ void widen(uint32_t queries) const {
    uint4 next[2] = {hopper::load_unit(queries), hopper::load_unit(queries + 512)};
#pragma unroll 2
    for (int i = 0; i < kUnits; i += 2, queries += 1024) {
      const uint4 units[2] = {next[0], next[1]};
      if (i + 2 < kUnits) {
        next[0] = hopper::load_unit(queries + 1024);
        next[1] = hopper::load_unit(queries + 1536);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4& u = units[j];
        hopper::store_unit(queries + j * 512,
                           {hopper::to_fp16<kShape.dtype>(u.x), hopper::to_fp16<kShape.dtype>(u.y),
                            hopper::to_fp16<kShape.dtype>(u.z), hopper::to_fp16<kShape.dtype>(u.w)});
      }
    }
  }

  /// Changes the signs of this warp's share of the queries: the softmax requires a factor above 0.
  __device__ __forceinline__ void flip_signs(uint32_t queries) const {
#pragma unroll 1
    for (int i = 0; i < kUnits; ++i, queries += 512) {
      const uint4 u = hopper::load_unit(queries);
      hopper::store_unit(queries, {u.x ^ kSigns, u.y ^ kSigns, u.z ^ kSigns, u.w ^ kSigns});
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int share_;
  const int lane_;
};

/// One of the two warps that convert queries apart from K and V, for the life of the block. The first one loads them.
template <Shape kShape>
__device__ __forceinline__ void take_queries(const Maps& maps, const KernelParams& p,
                                             SharedMemory<kShape>& smem, int share, int lane) {
  const QueryConverter<kShape, 2> converter(p, smem, share, lane);
  hopper::RingPlace<kShape.q_stages> q;
  for (uint32_t parity = 0;; parity ^= 1, q.advance()) {
    if (share == 0) {
      load_queries(maps, p, smem, q, parity, lane);
      if (lane == 0) smem.next_empty.arrive();
    }
    smem.landing.q_full[q.stage()].wait(q.parity());
    const WorkItem item = take_item(smem.item[q.stage()], lane);
    converter.convert(item, q);
    if (item.head < 0) return;
  }
}

/// One of the converting warps: for K or for V, and for a share of the queries unless other warps convert these. It
/// follows the producer tile by tile. All warps for K, or for V, share every part of a tile: then its buffer is free
/// again the sooner.
template <Shape kShape>
class Converter {
  using D = Derived<kShape>;
  static constexpr int kAtom = D::kAtomBytes;
  static constexpr bool kHalfRows = D::kChunkBytes < hopper::kChunkBytes;  ///< of 64 bytes
  static constexpr int kPartBytes = D::template kPartBytes<true>;          // K's rows are as wide

 public:
  __device__ __forceinline__ Converter(const KernelParams& p, SharedMemory<kShape>& smem, int warp, int lane)
      : p_(p), smem_(smem), warp_(warp), lane_(lane) {}

  __device__ __forceinline__ void run() {
    if constexpr (D::kQueriesApart) {
      follow(smem_, lane_, [&](const WorkItem& item, auto near_end) {
        near_end();
        convert_tiles(item);
      });
    } else {
      const QueryConverter<kShape, D::kConverters> queries(p_, smem_, warp_, lane_);
      hopper::RingPlace<kShape.q_stages> q;
      for (;; q.advance()) {
        smem_.landing.q_full[q.stage()].wait(q.parity());
        const WorkItem item = take_item(smem_.item[q.stage()], lane_);
        queries.convert(item, q);
        if (item.head < 0) return;
        convert_tiles(item);
      }
    }
  }

 private:
  __device__ __forceinline__ void convert_tiles(const WorkItem& item) {
#pragma unroll 1
    for (int tiles = item.n_end - item.n_begin; tiles > 0; --tiles) {
      if constexpr (kShape.e4m3_q) {
        transpose_tile();
      } else {
        widen_tile();
      }
      ++tiles_;
    }
  }

  /// Where a lane widens 16-byte unit `unit` of row `row` of an atom to two units: bytes from the atom to the unit, and
  /// to the first of the two. Eight neighbouring lanes have one half of a row and the other half of another one: then
  /// neither their loads nor their stores share a bank.
  struct Places {
    uint32_t from, to;
  };
  __device__ __forceinline__ Places places() const {
    const uint32_t lane = lane_anew();
    if constexpr (kHalfRows) {
      // An atom is 8 rows of 64 bytes, in which unit u of row r lies at unit u ^ r / 2 % 4. Eight lanes have
      // units 0, 1 of two rows and 2, 3 of the next two, or the other way round.
      const uint32_t row = lane / 16 * 4 + lane / 2 % 4;
      const uint32_t unit = lane % 2 + 2 * (lane / 4 % 2 ^ lane / 8 % 2);
      return {row * D::kChunkBytes + (unit ^ row / 2) * 16,
              row * D::kChunkBytes + (2 * (unit % 2) ^ row / 2) * 16 + unit / 2 * kAtom};
    } else {
      // An atom is 8 rows of 128 bytes, in which unit u of row r lies at unit u ^ r. Eight lanes have units 0..3
      // of one row and 4..7 of the next, or the other way round. A lane also has the same unit of
      // row + 4, whose place in the row differs by 64 bytes.
      const uint32_t row = lane / 16 * 2 + lane / 4 % 2;
      const uint32_t unit = lane % 4 + 4 * (lane / 4 % 2 ^ lane / 8 % 2);
      return {row * D::kChunkBytes + (unit ^ row) * 16,
              row * D::kChunkBytes + (2 * (unit % 4) ^ row) * 16 + unit / 4 * kAtom};
    }
  }

  /// Widens this warp's share of the next tile of K or V. One code for both is faster than two: instructions that
  /// the block's other warps need stay in the cache.
  __device__ __forceinline__ void widen_tile() {
    static_assert(D::kKStages == D::kVStages && D::kKBytes == D::kVBytes);
    const bool is_v = warp_ % 2 == 1;
    auto& landed = is_v ? smem_.landing.v_ring : smem_.landing.k_ring;
    auto& ring = is_v ? smem_.v_ring : smem_.k_ring;
    const uint32_t landed_tiles = hopper::shared_address(is_v ? smem_.landed_v.parts : smem_.landed_k.parts);
    const uint32_t wide_tiles = hopper::shared_address(is_v ? smem_.v : smem_.k);
    constexpr uint32_t kShare = kPartBytes / D::kTileConverters;
    const uint32_t mine = warp_ / 2 * kShare;
    const Places places = this->places();
    const hopper::RingPlace<D::kKStages> tile{tiles_};
    ring.await_empty(tile);
#pragma unroll 1
    for (uint32_t part = 0; part < D::kParts; ++part) {
      const hopper::RingPlace<D::kLandedStages> place{tiles_ * D::kParts + part};
      landed.await_full(place);
      widen<kShare>(wide_tiles + tile.stage() * D::kKBytes + 2 * (part * kPartBytes + mine) + places.to,
                    landed_tiles + place.stage() * kPartBytes + mine + places.from);
      landed.release(place, lane_);  // what it held is in registers, and stored
    }
    hopper::fence_for_wgmma();
    __syncwarp();
    if (lane_ == 0) ring.full[tile.stage()].arrive();
  }

  /// Widens this lane's units of kBytes bytes of e4m3, which are whole atoms, to twice as many atoms of fp16: of each
  /// the channels of the first half, then those of the second. A lane has a unit of each 512 bytes, and takes two at
  /// a time. Loads are a step ahead of stores, which hides their latency.
  template <int kBytes>
  __device__ __forceinline__ static void widen(uint32_t place, uint32_t source) {
    constexpr int kAtoms = kBytes / kAtom;
    static_assert(kAtoms % 2 == 0);
    uint4 next[2] = {hopper::load_unit(source), hopper::load_unit(source + kAtom)};
#pragma unroll
    for (int half = 0; half < (kHalfRows ? 1 : 2); ++half) {
#pragma unroll
      for (int atom = 0; atom < kAtoms; atom += 2) {
        const uint4 units[2] = {next[0], next[1]};
        int ahead = half * (kAtom / 2) + (atom + 2) * kAtom;
        if (atom + 2 == kAtoms) {  // on to rows 4..7 of all atoms
          source ^= 64;
          ahead = kAtom / 2;
        }
        if (atom + 2 < kAtoms || half < (kHalfRows ? 0 : 1)) {
#pragma unroll
          for (int i = 0; i < 2; ++i) next[i] = hopper::load_unit(source + ahead + i * kAtom);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t offset = half * (kAtom / 2) + (atom + i) * 2 * kAtom;
          hopper::store_unit(place + offset, widened(units[i].x, units[i].y));
          hopper::store_unit((place ^ 16) + offset, widened(units[i].z, units[i].w));
        }
      }
      place ^= 64;
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
  uint32_t tiles_ = 0;  ///< of K or V so far
};

}  // namespace attnbench::sm90_prefill
