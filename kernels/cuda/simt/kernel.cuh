// Attention with online softmax, one CTA per tile of query rows of one KV head. See README.md.
#pragma once

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/common/addressing.h"
#include "kernels/common/descale.h"
#include "kernels/common/mask.h"
#include "kernels/common/rotary.h"
#include "kernels/common/score.h"
#include "kernels/contract/attention_params.h"
#include "kernels/contract/dropout.h"

namespace attnbench::cuda_simt {

inline constexpr int kThreads = 128;
inline constexpr int kTile = 32;   ///< query rows, and keys, of a tile
inline constexpr int kLanes = 16;  ///< threads that share a row: thread = 16 * ty + tx
inline constexpr int kRows = 4;    ///< rows of a thread: 4 * ty + 0..3
inline constexpr int kPad = 4;     ///< floats after each row, so that 8 rows' float4 fall on 32 banks
inline constexpr int kPStride = kTile + kPad;
static_assert(kThreads / kLanes * kRows == kTile);

/// What ALiBi needs of a row. In shared memory, as the loop over keys has no registers to spare.
struct RowBias {
  float slope;
  int32_t diagonal;  ///< the key at distance 0
};

/// Widths of an instantiation, by the padded head_dim. Up to 256 a tile of K, or of V, is in shared memory at
/// once; beyond, in pieces, as the tile of Q fills most of it.
template <int kD>
struct Widths {
  static constexpr int kPiece = kD <= 256 ? kD : 128;
  static constexpr int kDv = kD <= 256 ? kD : 512;
  static constexpr int kPiecesV = kDv / kPiece;
  /// Shared memory of a CTA: the tiles of Q, of K then V, and of P, all fp32, and a RowBias per row.
  static constexpr int kSharedBytes =
      static_cast<int>(sizeof(float)) * (kTile * (kD + kPad) + kTile * (kPiece + kPad) + kTile * kPStride) +
      static_cast<int>(sizeof(RowBias)) * kTile;
};

/// How elements are read: one by one, or kVec neighbours as one word where rows are aligned to that.
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
struct Element<DType::kInt8> {
  using Storage = int8_t;
  static constexpr int kVec = 16;
  static __device__ float to_float(int8_t x) { return static_cast<float>(x); }
};

/// As store_float, for the output types that `supports` lets through. The rest of its switch, inlined for
/// each channel of a thread, would take registers from the loop over keys.
__device__ inline void store_output(DType t, void* out, int64_t index, float x) {
  if (t == DType::kBf16) {
    static_cast<uint16_t*>(out)[index] = float_to_bf16(x);
  } else if (t == DType::kFp16) {
    static_cast<uint16_t*>(out)[index] = float_to_fp16(x);
  } else {
    static_cast<float*>(out)[index] = x;
  }
}

/// Neighbouring values that move as one.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Pack {
  T x[kCount];
};

/// Whether every row of a tensor starts at a multiple of kVec elements' bytes.
template <DType kType>
__device__ bool rows_aligned(const void* base, int64_t stride_block, int64_t stride_token,
                             int64_t stride_head) {
  using E = Element<kType>;
  return reinterpret_cast<uintptr_t>(base) % (E::kVec * sizeof(typename E::Storage)) == 0 &&
         ((stride_block | stride_token | stride_head) & (E::kVec - 1)) == 0;
}

/// What the numbers of a row are multiplied by, where nothing is.
struct Unscaled {
  __device__ float operator()(int) const { return 1.0f; }
};

/// Channels first .. first + kWidth - 1 of rows 0..kTile-1 of a tile into shared memory as fp32, times
/// `scale_of(r)`, rows kStride apart. `row_of(r)` gives channel 0 of row r, or null for a row that must not
/// be read. Such rows, and channels from `dim` on, become zeros: memory that the problem does not own may
/// hold NaN, and 0 * NaN would reach the output.
template <DType kType, int kWidth, int kStride, class RowOf, class ScaleOf = Unscaled>
__device__ void load_tile(float* tile, int first, int dim, bool aligned, RowOf row_of,
                          ScaleOf scale_of = {}) {
  using E = Element<kType>;
  using T = typename E::Storage;
  constexpr int kVec = E::kVec;
  constexpr int kVecs = kWidth / kVec;
  // Neighbouring threads store float4: of neighbouring channels, or, where those belong to one thread, of 8
  // neighbouring rows, as that too falls on 32 banks.
  constexpr int kDown = kVec == 4 ? 1 : 8;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kVecs; i += kThreads) {
    const int r = i / kDown / kVecs * kDown + i % kDown;
    const int c = kVec * (i / kDown % kVecs);
    Pack<float, 4> quads[kVec / 4] = {};
    const T* row = row_of(r);
    if (row != nullptr) {
      const int channel = first + c;
      if (aligned && channel + kVec <= dim) {
        const auto raw = *reinterpret_cast<const Pack<T, kVec>*>(row + channel);
#pragma unroll
        for (int u = 0; u < kVec; ++u) quads[u / 4].x[u % 4] = E::to_float(raw.x[u]);
      } else {
#pragma unroll
        for (int u = 0; u < kVec; ++u) {
          if (channel + u < dim) quads[u / 4].x[u % 4] = E::to_float(row[channel + u]);
        }
      }
      if constexpr (!std::is_same_v<ScaleOf, Unscaled>) {
        const float scale = scale_of(r);
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

/// With num_splits the keys of a tile are cut into parts, whose states go to outputs of their own.
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
  int first_in_group;  ///< row 0 of the tile is this one of the group's heads
  int group;
  int count;  ///< rows that exist, 1..kTile

  __device__ int token(int r) const { return first_token + (first_in_group + r) / group; }
  __device__ int head_in_group(int r) const { return (first_in_group + r) % group; }
};

/// Maximum over the 16 threads that share a row.
__device__ inline float row_max(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

/// Sum over the 16 threads that share a row. A butterfly: the same order of additions in each launch.
__device__ inline float row_sum(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

/// Calls f(i, u, score) for each score of a thread: its row i, its key u of the tile's two.
template <class F>
__device__ void for_each_score(float (&s)[kRows][2], F f) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int u = 0; u < 2; ++u) f(i, u, s[i][u]);
  }
}

/// Turns the queries of a tile to their positions, rounded to kType again. `tile` is complete, in rows of kD
/// + kPad.
template <DType kType, int kD>
__device__ void rotate_queries(const AttentionParams& p, int b, const SeqRange& seq, const TileRows& rows,
                               float* tile) {
  const int half = p.rotary.dim / 2;
  for (int i = static_cast<int>(threadIdx.x); i < rows.count * half; i += kThreads) {
    const int r = i / half;
    const int pair = i % half;
    const int64_t position = query_position(p, b, seq, rows.token(r));
    if (position < 0 || position >= p.rotary.positions)
      continue;  // outside the contract: nothing may be read
    float* row = tile + r * (kD + kPad);
    const int first = p.rotary.interleaved ? 2 * pair : pair;
    const int second = p.rotary.interleaved ? first + 1 : pair + half;
    const auto load = [&](int32_t c) { return row[c]; };
    const float a = rotated(p.rotary, position, first, load);
    const float b = rotated(p.rotary, position, second, load);
    row[first] = round_to(kType, a);
    row[second] = round_to(kType, b);
  }
}

/// The tile of Q, fp32. Quantised queries carry their descales: those of int8 differ by row.
template <DType kType, int kD>
__device__ void load_q(const AttentionParams& p, int b, const SeqRange& seq, int kv_head,
                       const TileRows& rows, float* q_tile) {
  using T = typename Element<kType>::Storage;
  const int head0 = kv_head * rows.group;
  const auto row_of = [&](int r) -> const T* {
    if (r >= rows.count) return nullptr;
    return static_cast<const T*>(p.q) +
           q_offset(p, int64_t{seq.q_begin} + rows.token(r), head0 + rows.head_in_group(r));
  };
  const bool aligned = rows_aligned<kType>(p.q, 0, p.q_stride_token, p.q_stride_head);
  if constexpr (kType == DType::kE4m3 || kType == DType::kInt8) {
    load_tile<kType, kD, kD + kPad>(q_tile, 0, p.head_dim, aligned, row_of, [&](int r) {
      return q_descale(p, b, int64_t{seq.q_begin} + rows.token(r), head0 + rows.head_in_group(r));
    });
  } else {
    load_tile<kType, kD, kD + kPad>(q_tile, 0, p.head_dim, aligned, row_of);
  }
}

/// The same by the type of q: that of K, unless K is quantised.
template <DType kKType, int kD>
__device__ void load_q_tile(const AttentionParams& p, int b, const SeqRange& seq, int kv_head,
                            const TileRows& rows, float* q_tile) {
  if constexpr (kKType != DType::kE4m3 && kKType != DType::kInt8) {
    load_q<kKType, kD>(p, b, seq, kv_head, rows, q_tile);
  } else if (p.dtype_q == kKType) {
    load_q<kKType, kD>(p, b, seq, kv_head, rows, q_tile);
  } else if (p.dtype_q == DType::kBf16) {
    load_q<DType::kBf16, kD>(p, b, seq, kv_head, rows, q_tile);
  } else if (p.dtype_q == DType::kFp16) {
    load_q<DType::kFp16, kD>(p, b, seq, kv_head, rows, q_tile);
  } else {
    load_q<DType::kFp32, kD>(p, b, seq, kv_head, rows, q_tile);
  }
}

/// One tile of query rows of KV head `kv_head` of sequence `b` against all keys that it sees. Keys are of
/// kKType, values of kVType; kD is the padded head_dim.
template <DType kKType, DType kVType, int kD>
__device__ void attend_tile(const AttentionParams& p, const KeyParts& parts, int part, int b,
                            const SeqRange& seq, int kv_head, const TileRows& rows, float* shared) {
  using KT = typename Element<kKType>::Storage;
  using VT = typename Element<kVType>::Storage;
  constexpr int kPiece = Widths<kD>::kPiece;
  constexpr int kPiecesV = Widths<kD>::kPiecesV;
  constexpr int kQStride = kD + kPad;
  constexpr int kStride = kPiece + kPad;
  constexpr int kVec = kPiece / kLanes < 4 ? kPiece / kLanes : 4;  // neighbouring channels of a thread
  constexpr int kVecs = kPiece / (kLanes * kVec);                  // such packs, 16 * kVec channels apart
  float* const q_tile = shared;
  float* const kv_tile = q_tile + kTile * kQStride;
  float* const p_tile = kv_tile + kTile * kStride;
  auto* const row_bias = reinterpret_cast<RowBias*>(p_tile + kTile * kPStride);

  const int tx = static_cast<int>(threadIdx.x) % kLanes;
  const int row0 = static_cast<int>(threadIdx.x) / kLanes * kRows;
  const int head0 = kv_head * rows.group;
  const bool k_aligned = rows_aligned<kKType>(p.k, p.k_stride_block, p.k_stride_token, p.k_stride_head);
  const bool v_aligned = rows_aligned<kVType>(p.v, p.v_stride_block, p.v_stride_token, p.v_stride_head);

  // Descales of e4m3 are the same for all keys: that of K is a factor of the scores, that of V one of the
  // output. int8 K is multiplied on its way to shared memory, row by row, and the channels of int8 V at the
  // end.
  float score_scale = p.softmax_scale;
  if constexpr (kKType == DType::kE4m3) score_scale *= k_descale(p, b, kv_head);

  __syncthreads();  // the tile before this one has been read to its end
  load_q_tile<kKType, kD>(p, b, seq, kv_head, rows, q_tile);

  if (p.features & kRotary) {
    __syncthreads();  // of the keys' loop another one follows before q is read
    rotate_queries<kKType, kD>(p, b, seq, rows, q_tile);
  }

  const bool alibi = p.features & kAlibi;
  if (alibi && threadIdx.x < kTile) {
    const int r = static_cast<int>(threadIdx.x);
    row_bias[r] = r < rows.count ? RowBias{alibi_slope(p, b, head0 + rows.head_in_group(r)),
                                           rows.token(r) + seq.k_len - seq.q_len}
                                 : RowBias{0.0f, 0};
  }

  KeyBounds bounds[kRows];
  float max[kRows];                              // of the scores so far; -inf: none seen
  float sum[kRows];                              // this thread's part of the sum of exp(score - max)
  Pack<float, kVec> o[kRows][kPiecesV * kVecs];  // sum of exp(score - max) * v
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    bounds[i] =
        row0 + i < rows.count ? visible_keys(p, rows.token(row0 + i), seq.q_len, seq.k_len) : KeyBounds{0, 0};
    max[i] = -INFINITY;
    sum[i] = 0.0f;
#pragma unroll
    for (auto& pack : o[i]) pack = {};
  }

  const KeyBounds range = parts.of(
      part, visible_keys_of_rows(p, rows.first_token, rows.token(rows.count - 1), seq.q_len, seq.k_len));
#pragma unroll
  for (KeyBounds& seen : bounds) seen = {::max(seen.begin, range.begin), ::min(seen.end, range.end)};
  for (int key0 = range.begin; key0 < range.end; key0 += kTile) {
    // Scores of keys key0 + tx and key0 + tx + 16.
    float s[kRows][2] = {};
    const auto k_row = [&](int r) -> const KT* {
      if (key0 + r >= range.end) return nullptr;
      return static_cast<const KT*>(p.k) + k_row_offset(p, b, key0 + r) + kv_head * p.k_stride_head;
    };
#pragma unroll 1
    for (int c0 = 0; c0 < kD && (c0 == 0 || c0 < p.head_dim); c0 += kPiece) {
      __syncthreads();  // V of the keys before, or the last piece of K, is no longer read
      if constexpr (kKType == DType::kInt8) {
        load_tile<kKType, kPiece, kStride>(kv_tile, c0, p.head_dim, k_aligned, k_row,
                                           [&](int r) { return k_row_descale(p, b, key0 + r, kv_head); });
      } else {
        load_tile<kKType, kPiece, kStride>(kv_tile, c0, p.head_dim, k_aligned, k_row);
      }
      __syncthreads();
      const int width = kD % kPiece == 0 || c0 + kPiece <= kD ? kPiece : kD - c0;
#pragma unroll 4
      for (int c = 0; c < width; c += 4) {
        const auto k_lo = *reinterpret_cast<const Pack<float, 4>*>(kv_tile + tx * kStride + c);
        const auto k_hi = *reinterpret_cast<const Pack<float, 4>*>(kv_tile + (tx + kLanes) * kStride + c);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const auto q = *reinterpret_cast<const Pack<float, 4>*>(q_tile + (row0 + i) * kQStride + c0 + c);
#pragma unroll
          for (int u = 0; u < 4; ++u) {
            s[i][0] = fmaf(q.x[u], k_lo.x[u], s[i][0]);
            s[i][1] = fmaf(q.x[u], k_hi.x[u], s[i][1]);
          }
        }
      }
    }

    // Each optional term behind one branch for all scores: a branch per score cost 3 to 8 % on an H100, even
    // where it was never taken.
    for_each_score(s, [&](int, int, float& x) { x *= score_scale; });
    if (p.softcap > 0.0f) for_each_score(s, [&](int, int, float& x) { x = softcap_score(x, p.softcap); });
    if (alibi) {
      for_each_score(s, [&](int i, int u, float& x) {
        const RowBias bias = row_bias[row0 + i];
        const int key = key0 + tx + u * kLanes;
        x += alibi_bias(bias.slope, ::abs(bias.diagonal - key), p.alibi_sqrt != 0);
      });
    }
    for_each_score(s, [&](int i, int u, float& x) {
      const int key = key0 + tx + u * kLanes;
      x = key >= bounds[i].begin && key < bounds[i].end ? x : -INFINITY;
    });

#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float new_max = fmaxf(max[i], row_max(fmaxf(s[i][0], s[i][1])));
      // The difference first, which is exact near the maximum: the product's rounding would stand in the
      // exponent, and at scores of 1e9 leave no weight.
      const float ref = new_max == -INFINITY ? 0.0f : new_max;
      const float decay = exp2f((max[i] - ref) * kLog2E);
      const float p_lo = exp2f((s[i][0] - ref) * kLog2E);
      const float p_hi = exp2f((s[i][1] - ref) * kLog2E);
      max[i] = new_max;
      sum[i] = fmaf(sum[i], decay, p_lo + p_hi);
#pragma unroll
      for (auto& pack : o[i]) {
#pragma unroll
        for (float& x : pack.x) x *= decay;
      }
      s[i][0] = p_lo;
      s[i][1] = p_hi;
    }
    if (p.features & kDropout) {  // of what V is multiplied by, not of the sum
      const uint32_t threshold = dropout_threshold(p.p_dropout);
      const float scale = dropout_scale(p.p_dropout);
      for_each_score(s, [&](int i, int u, float& x) {
        const bool keeps =
            dropout_keeps(p.dropout_seed, p.dropout_offset, head0 + rows.head_in_group(row0 + i),
                          int64_t{seq.q_begin} + rows.token(row0 + i), key0 + tx + u * kLanes, threshold);
        x = keeps ? x * scale : 0.0f;
      });
    }
    for_each_score(s, [&](int i, int u, float& x) { p_tile[(row0 + i) * kPStride + tx + u * kLanes] = x; });

#pragma unroll
    for (int piece = 0; piece < kPiecesV; ++piece) {
      if (piece > 0 && piece * kPiece >= p.head_dim_v) break;
      __syncthreads();  // K, or the last piece of V, is no longer read; P is there
      load_tile<kVType, kPiece, kStride>(
          kv_tile, piece * kPiece, p.head_dim_v, v_aligned, [&](int r) -> const VT* {
            if (key0 + r >= range.end) return nullptr;
            return static_cast<const VT*>(p.v) + v_row_offset(p, b, key0 + r) + kv_head * p.v_stride_head;
          });
      __syncthreads();

#pragma unroll 2
      for (int j = 0; j < kTile; j += 4) {
        Pack<float, 4> weight[kRows];  // of keys j .. j + 3
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          weight[i] = *reinterpret_cast<const Pack<float, 4>*>(p_tile + (row0 + i) * kPStride + j);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
#pragma unroll
          for (int g = 0; g < kVecs; ++g) {
            const auto v = *reinterpret_cast<const Pack<float, kVec>*>(kv_tile + (j + u) * kStride +
                                                                       kVec * (tx + g * kLanes));
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
#pragma unroll
              for (int c = 0; c < kVec; ++c) {
                float& sum_o = o[i][piece * kVecs + g].x[c];
                sum_o = fmaf(weight[i].x[u], v.x[c], sum_o);
              }
            }
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float total = row_sum(sum[i]);  // before the test: shuffles need all threads
    if (row0 + i >= rows.count) continue;
    const int64_t q_row = int64_t{seq.q_begin} + rows.token(row0 + i);
    const int head = head0 + rows.head_in_group(row0 + i);
    const auto [divisor, lse] = end_row(max[i], total, sink_of(p, head));
    if (tx == 0) p.lse[part * parts.lse_stride + lse_offset(p, q_row, head)] = lse;
    const int64_t at = part * parts.out_stride + out_offset(p, q_row, head);
#pragma unroll
    for (int g = 0; g < kPiecesV * kVecs; ++g) {
#pragma unroll
      for (int c = 0; c < kVec; ++c) {
        const int channel = kVec * (tx + g * kLanes) + c;
        if (channel < p.head_dim_v) {
          // A row without keys, with a sink or not, has no use for a descale, which may be NaN.
          float x = total == 0.0f ? 0.0f : o[i][g].x[c] / divisor;
          if constexpr (kVType == DType::kE4m3 || kVType == DType::kInt8) {
            if (total != 0.0f) x *= v_descale(p, b, kv_head, channel);
          }
          store_output(p.dtype_out, p.out, at + channel, x);
        }
      }
    }
  }
}

/// Grid: x tiles of query rows, y KV heads, z parts of sequences, each with a stride where the grid is
/// smaller than the problem. Lengths are read here, not on the host, so that a captured graph follows them.
template <DType kKType, DType kVType, int kD>
__global__ void __launch_bounds__(kThreads, kD <= 128 ? 3 : 2)
    attention_kernel(const __grid_constant__ AttentionParams p, const KeyParts parts) {
  extern __shared__ float4 shared[];  // float4 for its alignment
  const int group = p.num_heads_q / p.num_heads_kv;
  for (int64_t z = blockIdx.z; z < int64_t{p.batch} * parts.count; z += gridDim.z) {
    const int b = static_cast<int>(z / parts.count);
    const int part = static_cast<int>(z % parts.count);
    const SeqRange seq = seq_range(p, b);
    const int64_t num_rows = int64_t{seq.q_len} * group;
    for (int kv_head = static_cast<int>(blockIdx.y); kv_head < p.num_heads_kv;
         kv_head += static_cast<int>(gridDim.y)) {
      for (int64_t first = int64_t{blockIdx.x} * kTile; first < num_rows;
           first += int64_t{gridDim.x} * kTile) {
        TileRows rows;
        rows.first_token = static_cast<int>(first / group);
        rows.first_in_group = static_cast<int>(first % group);
        rows.group = group;
        rows.count = static_cast<int>(num_rows - first < kTile ? num_rows - first : kTile);
        attend_tile<kKType, kVType, kD>(p, parts, part, b, seq, kv_head, rows,
                                        reinterpret_cast<float*>(shared));
      }
    }
  }
}

}  // namespace attnbench::cuda_simt
