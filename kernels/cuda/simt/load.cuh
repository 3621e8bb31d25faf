// Loads tiles of Q, K and V into shared memory, converted from any type to fp32.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/common/block_scales.h"
#include "kernels/common/descale.h"
#include "kernels/common/rotary.h"
#include "kernels/cuda/simt/tile.cuh"

namespace attnbench::cuda_simt {

/// How elements are read: one by one, or kVec neighbours as one word where all rows are aligned to such
/// words.
template <DType kType>
struct Element;
template <>
struct Element<DType::kBf16> {
  using Storage = uint16_t;
  static constexpr int kVec = 4;
  static __device__ float to_float(uint16_t h) { return bf16_to_float(h); }
};
template <>
struct Element<DType::kFp16> {
  using Storage = uint16_t;
  static constexpr int kVec = 4;
  static __device__ float to_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
};
template <>
struct Element<DType::kFp32> {
  using Storage = float;
  static constexpr int kVec = 4;
  static __device__ float to_float(float x) { return x; }
};
template <>
struct Element<DType::kE4m3> {
  using Storage = uint8_t;
  static constexpr int kVec = 16;
  static __device__ float to_float(uint8_t x) { return e4m3_to_float(x); }
};
template <>
struct Element<DType::kE5m2> {
  using Storage = uint8_t;
  static constexpr int kVec = 16;
  static __device__ float to_float(uint8_t x) {
    return __half2float(__ushort_as_half(static_cast<uint16_t>(x << 8)));
  }
};
template <>
struct Element<DType::kInt8> {
  using Storage = int8_t;
  static constexpr int kVec = 16;
  static __device__ float to_float(int8_t x) { return static_cast<float>(x); }
};

inline constexpr int64_t kNoRow = INT64_MIN;

/// A tensor whose rows are loaded.
struct TileSource {
  const void* base;
  DType type;
  int dim;       ///< channels of a row
  bool aligned;  ///< every row starts at a multiple of a word, see tile_source
};

/// Describes a tensor for loading. A word has 8 bytes for bf16 and fp16 and 16 bytes for the other types: 4
/// elements, or 16 of one byte.
__device__ inline TileSource tile_source(const void* base, DType type, int dim, int64_t stride_block,
                                         int64_t stride_token, int64_t stride_head) {
  const bool bytes = is_fp8(type) || type == DType::kInt8;
  const bool halfs = type == DType::kBf16 || type == DType::kFp16;
  const bool aligned = reinterpret_cast<uintptr_t>(base) % (halfs ? 8 : 16) == 0 &&
                       ((stride_block | stride_token | stride_head) & (bytes ? 15 : 3)) == 0;
  return {base, type, dim, aligned};
}

/// Loads channels first .. first + kWidth - 1 of rows 0 .. kCount - 1 of a tile into shared memory as fp32,
/// rows kStride floats apart. `rows.offset(r)` is the offset of channel 0 of row r in elements, or kNoRow for
/// a row that must not be read. Such rows, and channels from `from.dim` on, become zeros: memory that the
/// problem does not own may hold NaN, and 0 * NaN would reach the output. Quantised numbers are multiplied by
/// `rows.scale(r)`. Without __restrict__ the parameters would be read again after each store.
template <DType kType, int kWidth, int kStride, int kCount, int kTeam, class Rows>
__device__ void load_elements(TileSource from, float* __restrict__ tile, int first, Rows rows) {
  using E = Element<kType>;
  using T = typename E::Storage;
  constexpr int kVec = E::kVec;
  constexpr int kVecs = kWidth / kVec;
  // Neighbouring threads store float4 of neighbouring channels. Where those belong to one thread (one-byte
  // types), they store float4 of 8 neighbouring rows, which fall on 32 different banks too.
  constexpr int kDown = kVec == 4 ? 1 : 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kVecs; i += kTeam) {
    const int r = i / kDown / kVecs * kDown + i % kDown;
    const int c = kVec * (i / kDown % kVecs);
    Pack<float, 4> quads[kVec / 4] = {};
    const int64_t at = rows.offset(r);
    if (at != kNoRow) {
      const T* row = static_cast<const T*>(from.base) + at;
      const int channel = first + c;
      if (from.aligned && channel + kVec <= from.dim) {
        const auto raw = *reinterpret_cast<const Pack<T, kVec>*>(row + channel);
#pragma unroll
        for (int u = 0; u < kVec; ++u) quads[u / 4].x[u % 4] = E::to_float(raw.x[u]);
      } else {
#pragma unroll
        for (int u = 0; u < kVec; ++u) {
          if (channel + u < from.dim) quads[u / 4].x[u % 4] = E::to_float(row[channel + u]);
        }
      }
      if constexpr (is_fp8(kType) || kType == DType::kInt8) {
        const float scale = rows.scale(r);
#pragma unroll
        for (int u = 0; u < kVec; ++u) quads[u / 4].x[u % 4] *= scale;
      }
    }
#pragma unroll
    for (int g = 0; g < kVec / 4; ++g) {
      *reinterpret_cast<Pack<float, 4>*>(tile + r * kStride + c + 4 * g) = quads[g];
    }
  }
}

/// The same for any type, by a team of kTeam threads. It is not inlined: K and V share one function, which halves
/// the code to compile.
template <int kWidth, int kStride, int kCount = kTile, int kTeam = kThreads, class Rows>
__device__ __noinline__ void load_tile(TileSource from, float* __restrict__ tile, int first, Rows rows) {
  switch (from.type) {
    case DType::kBf16:
      return load_elements<DType::kBf16, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
    case DType::kFp16:
      return load_elements<DType::kFp16, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
    case DType::kE4m3:
      return load_elements<DType::kE4m3, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
    case DType::kE5m2:
      return load_elements<DType::kE5m2, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
    case DType::kInt8:
      return load_elements<DType::kInt8, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
    default:
      return load_elements<DType::kFp32, kWidth, kStride, kCount, kTeam>(from, tile, first, rows);
  }
}

/// Rows of Q in a tile. Quantised queries are multiplied by their descales, which for int8 differ by row.
struct QRows {
  const AttentionParams& p;
  int b;
  int64_t q_begin;
  int head0;
  TileRows rows;

  __device__ int64_t offset(int r) const {
    return r < rows.count ? q_offset(p, q_begin + rows.token(r), head0 + rows.head_in_group(r)) : kNoRow;
  }
  __device__ float scale(int r) const {
    return q_descale(p, b, q_begin + rows.token(r), head0 + rows.head_in_group(r));
  }
};

/// Rows of the second query (kQv) in a tile.
struct QvRows {
  const AttentionParams& p;
  int64_t q_begin;
  int head0;
  TileRows rows;

  __device__ int64_t offset(int r) const {
    if (r >= rows.count) return kNoRow;
    return (q_begin + rows.token(r)) * p.qv_stride_token + (head0 + rows.head_in_group(r)) * p.qv_stride_head;
  }
  __device__ float scale(int) const { return 1.0f; }
};

/// Rows of K or of V for the keys key0 .. key0 + kTile - 1. Descales per row are applied here; attend_tile applies the
/// others.
struct KvRows {
  const AttentionParams& p;
  int b;
  int kv_head;
  int key0;
  int end;  ///< keys from here on are not read
  bool is_v;

  __device__ int64_t offset(int r) const {
    if (key0 + r >= end) return kNoRow;
    return is_v ? v_row_offset(p, b, key0 + r) + kv_head * p.v_stride_head
                : k_row_offset(p, b, key0 + r) + kv_head * p.k_stride_head;
  }
  __device__ float scale(int r) const { return row_descale(p, is_v, b, key0 + r, kv_head); }
  __device__ bool reads(int r) const { return key0 + r < end; }
  __device__ ScaledRow scaled(int r) const {
    return scaled_row(p, kv_head, is_v, [&](int64_t stride_block, int64_t stride_token) {
      return kv_row_offset(p, b, key0 + r, stride_block, stride_token);
    });
  }
};

/// The same for the rows that entries first .. first + kTile - 1 of a list name. -1 names none.
struct ListedRows {
  const AttentionParams& p;
  const int32_t* list;
  int kv_head;
  int first;
  int end;  ///< entries from here on are not read
  bool is_v;

  __device__ int64_t offset(int r) const {
    if (first + r >= end) return kNoRow;
    const int32_t entry = list[first + r];
    if (entry < 0) return kNoRow;
    return is_v ? listed_row_offset(p, entry, p.v_stride_block, p.v_stride_token) + kv_head * p.v_stride_head
                : listed_row_offset(p, entry, p.k_stride_block, p.k_stride_token) + kv_head * p.k_stride_head;
  }
  __device__ float scale(int) const { return 1.0f; }
  __device__ bool reads(int r) const { return first + r < end && list[first + r] >= 0; }
  __device__ ScaledRow scaled(int r) const {
    return scaled_row(p, kv_head, is_v, [&](int64_t stride_block, int64_t stride_token) {
      return listed_row_offset(p, list[first + r], stride_block, stride_token);
    });
  }
};

/// load_tile for rows with scales for blocks of channels (kBlockScales). A thread reads four channels, which share a
/// scale. It is not inlined, for the reason of load_turned_keys.
template <int kWidth, int kStride, class Rows>
__device__ __noinline__ void load_scaled_tile(const AttentionParams& p, float* __restrict__ tile, int first,
                                              Rows rows) {
  constexpr int kQuads = kWidth / 4;
  const int dim = rows.is_v ? p.head_dim_v : p.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kQuads; i += kThreads) {
    const int r = i / kQuads;
    const int c = first + i % kQuads * 4;
    Pack<float, 4> x = {};
    if (c < dim && rows.reads(r)) {
      const ScaledRow row = rows.scaled(r);
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        if (c + u < dim) x.x[u] = scaled_channel(p, rows.is_v, row, c + u);
      }
    }
    *reinterpret_cast<Pack<float, 4>*>(tile + r * kStride + i % kQuads * 4) = x;
  }
}

/// load_tile for keys that turn when they are read (kRotaryCached). Each thread reads both channels of a pair, so
/// that a piece of a row can be turned too. It is not inlined: launches without such keys keep their registers.
template <int kWidth, int kStride>
__device__ __noinline__ void load_turned_keys(const AttentionParams& p, float* __restrict__ tile, int first,
                                              KvRows rows) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kWidth; i += kThreads) {
    const int r = i / kWidth;
    const int c = first + i % kWidth;
    const int64_t at = rows.offset(r);
    const int position = rows.key0 + r;
    float x = 0.0f;
    if (at != kNoRow && c < p.head_dim && position < p.rotary.positions) {
      x = turned_key(p, position, c,
                     [&](int32_t channel) { return load_float(p.dtype_k, p.k, at + channel); });
    }
    tile[r * kStride + i % kWidth] = x;
  }
}

/// Rotates the queries of a tile to their positions and rounds them to the type of q again. `tile` is
/// complete; its rows are kD + kPad floats apart.
template <int kD>
__device__ void rotate_queries(const AttentionParams& p, int b, const SeqRange& seq, const TileRows& rows,
                               float* tile) {
  const int half = p.rotary.dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < rows.count * half; i += kThreads) {
    const int r = i / half;
    const int pair = i % half;
    const int64_t position = query_position(p, b, seq, rows.token(r));
    if (position < 0 || position >= p.rotary.positions)
      continue;  // outside the contract: the tables must not be read
    float* row = tile + r * (kD + kPad);
    const int first = p.rotary.interleaved ? 2 * pair : pair;
    const int second = p.rotary.interleaved ? first + 1 : pair + half;
    const auto load = [&](int32_t c) { return row[c]; };
    const float a = rotated(p.rotary, position, first, load);
    const float b = rotated(p.rotary, position, second, load);
    row[first] = round_to(p.dtype_q, a);
    row[second] = round_to(p.dtype_q, b);
  }
}

}  // namespace attnbench::cuda_simt
