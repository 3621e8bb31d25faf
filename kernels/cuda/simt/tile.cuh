// What a CTA works on: its tile of query rows, the keys of its part, and how they lie in shared memory.
#pragma once

#include <cstdint>

#include "kernels/common/mask.h"

namespace attnbench::cuda_simt {

inline constexpr int kThreads = 128;
inline constexpr int kTile = 32;   ///< query rows, and keys, of a tile
inline constexpr int kLanes = 16;  ///< threads that share a row: thread = 16 * ty + tx
inline constexpr int kRows = 4;    ///< rows of a thread: 4 * ty + 0..3
inline constexpr int kPad = 4;     ///< floats after each row, so that the float4 of 8 rows fall on 32 banks
inline constexpr int kPStride = kTile + kPad;
static_assert(kThreads / kLanes * kRows == kTile);

/// What ALiBi needs for one row. It lies in shared memory because the loop over keys has no registers to
/// spare.
struct RowBias {
  float slope;
  int32_t diagonal;  ///< the key at distance 0
};

/// Widths of an instantiation, by the padded head_dim. Up to 256 channels a tile of K or of V is in shared
/// memory as a whole. Beyond, it comes in pieces of kPiece channels, because the tile of Q fills most of the
/// memory. With a second query (kWithQv), q and K have at most 256 channels, and K, V and the second query come
/// in pieces.
template <int kD, bool kWithQv = false>
struct Widths {
  static constexpr int kQ = kWithQv && kD > 256 ? 256 : kD;  ///< of the tile of Q
  static constexpr int kPiece = kD > 256 || (kWithQv && kD > 128) ? 128 : kD;
  static constexpr int kDv = kD <= 256 ? kD : 512;
  static constexpr int kPiecesV = kDv / kPiece;
  /// Shared memory of a CTA: the tiles of Q, of K then V, and of P, all fp32, a RowBias per row, and a piece of
  /// the second query.
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(float)) * kTile * (kQ + kPad + (kWithQv ? 2 : 1) * (kPiece + kPad) + kPStride) +
      static_cast<int>(sizeof(RowBias)) * kTile;
};

/// Neighbouring values that move as one word.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T x[kCount];
};

/// With num_splits the keys of a tile are cut into `count` parts. The state of each part goes to outputs of
/// its own.
struct KeyParts {
  int count = 1;
  int64_t out_stride = 0;  ///< elements from the O of one part to that of the next
  int64_t lse_stride = 0;

  __device__ KeyBounds of(int part, KeyBounds all) const {
    if (count == 1) return all;
    const int share = (all.end - all.begin + count - 1) / count;
    const int begin = min(all.end - all.begin, part * share);
    return {all.begin + begin, all.begin + min(all.end - all.begin, begin + share)};
  }
};

/// The query rows of a tile. Row r of a (sequence, KV head) is token r / group, query head
/// kv_head * group + r % group: the heads that share a KV head are packed, so that decode fills tiles too.
struct TileRows {
  int first_token;
  int first_in_group;  ///< index in the group of the head of the tile's row 0
  int group;
  int count;  ///< rows that exist, 1..kTile

  __device__ int token(int r) const { return first_token + (first_in_group + r) / group; }
  __device__ int head_in_group(int r) const { return (first_in_group + r) % group; }
};

}  // namespace attnbench::cuda_simt
