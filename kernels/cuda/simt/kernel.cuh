// Attention with online softmax, one CTA per tile of query rows of one KV head. See README.md.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/common/descale.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/contract/attention_params.h"
#include "kernels/contract/dropout.h"
#include "kernels/cuda/simt/load.cuh"
#include "kernels/cuda/simt/store.cuh"
#include "kernels/cuda/simt/tile.cuh"

namespace attnbench::cuda_simt {

/// Maximum over the 16 threads that share a row.
__device__ inline float row_max(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

/// Sum over the 16 threads that share a row. The butterfly adds in the same order in every launch.
__device__ inline float row_sum(float x) {
#pragma unroll
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

/// Calls f(i, u, score) for each score of a thread: row i of its kRows, key u of its two keys of the tile.
template <class F>
__device__ void for_each_score(float (&s)[kRows][2], F f) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int u = 0; u < 2; ++u) f(i, u, s[i][u]);
  }
}

/// Adds products of `width` channels to the scores of keys tx and tx + 16. Rows of queries are kQStride floats
/// apart, rows of keys kStride.
template <int kQStride, int kStride>
__device__ inline void multiply_piece(const float* q_rows, const float* keys, int tx, int width,
                                      float (&s)[kRows][2]) {
#pragma unroll 4
  for (int c = 0; c < width; c += 4) {
    const auto k_lo = *reinterpret_cast<const Pack<float, 4>*>(keys + tx * kStride + c);
    const auto k_hi = *reinterpret_cast<const Pack<float, 4>*>(keys + (tx + kLanes) * kStride + c);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const auto q = *reinterpret_cast<const Pack<float, 4>*>(q_rows + i * kQStride + c);
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        s[i][0] = fmaf(q.x[u], k_lo.x[u], s[i][0]);
        s[i][1] = fmaf(q.x[u], k_hi.x[u], s[i][1]);
      }
    }
  }
}

/// Bit 2 i + u: whether the custom mask hides key `key` + 16 u from row row0 + i of the tile. It is not inlined: beside
/// the accumulators its addresses would be spilled.
__device__ __noinline__ inline uint32_t hidden_scores(const AttentionParams& p, int b, int k_len,
                                                      TileRows rows, int row0, int key) {
  uint32_t hidden = 0;
  for (int i = 0; i < kRows && row0 + i < rows.count; ++i) {
    for (int u = 0; u < 2; ++u) {
      const int j = key + u * kLanes;
      if (j < k_len && !mask_bit(p, b, rows.token(row0 + i), j, k_len)) hidden |= 1u << (2 * i + u);
    }
  }
  return hidden;
}

/// Computes attention of one tile of query rows (sequence `b`, KV head `kv_head`) over the keys of part
/// `part` that the rows see. kD is the padded head_dim. kQv: there is a second query, multiplied with V. kListed: the
/// rows are of one query, and "keys" are entries of its list.
template <int kD, Kind kKind>
__device__ void attend_tile(const AttentionParams& p, const KeyParts& parts, int part, int b,
                            const SeqRange& seq, int kv_head, const TileRows& rows, float* shared) {
  constexpr int kPiece = Widths<kD, kKind>::kPiece;
  constexpr int kPiecesV = Widths<kD, kKind>::kPiecesV;
  constexpr int kQ = Widths<kD, kKind>::kQ;
  constexpr int kQStride = kQ + kPad;
  constexpr int kStride = kPiece + kPad;
  constexpr int kVec = kPiece / kLanes < 4 ? kPiece / kLanes : 4;  // neighbouring channels of a thread
  constexpr int kVecs = kPiece / (kLanes * kVec);  // packs of kVec channels in a piece, 16 * kVec apart
  float* const q_tile = shared;
  float* const kv_tile = q_tile + kTile * kQStride;
  float* const p_tile = kv_tile + kTile * kStride;
  auto* const row_bias = reinterpret_cast<RowBias*>(p_tile + kTile * kPStride);

  const int tx = static_cast<int>(threadIdx.x) % kLanes;
  const int row0 = static_cast<int>(threadIdx.x) / kLanes * kRows;
  const int head0 = kv_head * rows.group;
  const TileSource keys =
      tile_source(p.k, p.dtype_k, p.head_dim, p.k_stride_block, p.k_stride_token, p.k_stride_head);
  const TileSource values =
      tile_source(p.v, p.dtype_v, p.head_dim_v, p.v_stride_block, p.v_stride_token, p.v_stride_head);

  // Descales of all keys of a head: K's is a factor of the scores, V's one of the output, as those per channel are.
  // Descales per row are applied on the way to shared memory.
  const float score_scale = p.softmax_scale * k_descale(p, b, kv_head);

  __syncthreads();  // the previous tile is no longer read
  load_tile<kQ, kQStride>(tile_source(p.q, p.dtype_q, p.head_dim, 0, p.q_stride_token, p.q_stride_head),
                          q_tile, 0, QRows{p, b, seq.q_begin, head0, rows});

  if (p.features & kRotary) {
    __syncthreads();  // the tile is complete; the loop over keys has another barrier before q is read
    rotate_queries<kQ>(p, b, seq, rows, q_tile);
  }

  const bool alibi = p.features & kAlibi;
  if (alibi && threadIdx.x < kTile) {
    const int r = static_cast<int>(threadIdx.x);
    row_bias[r] = r < rows.count ? RowBias{alibi_slope(p, b, head0 + rows.head_in_group(r)),
                                           rows.token(r) + seq.k_len - seq.q_len}
                                 : RowBias{0.0f, 0};
  }

  constexpr bool kListed = kKind == Kind::kListed;
  // Without a list: the keys that a row sees. With one, all rows see the list.
  const int32_t* list = nullptr;
  KeyBounds seen_by_all{0, 0};
  if constexpr (kListed) {
    const int64_t q_row = int64_t{seq.q_begin} + rows.first_token;
    list = key_list(p, q_row, kv_head);
    seen_by_all.end = key_list_length(p, q_row);
  }
  const auto keys_of_rows = [&](int first, int last) {
    if constexpr (kListed) return seen_by_all;
    return visible_keys_of_rows(p, rows.token(first), rows.token(last), seq.q_len, seq.k_len);
  };
  const auto kv_rows = [&](int key0, int end, bool is_v) {
    if constexpr (kListed) {
      return ListedRows{p, list, kv_head, key0, end, is_v};
    } else {
      return KvRows{p, b, kv_head, key0, end, is_v};
    }
  };

  KeyBounds bounds[kRows];
  float max[kRows];                              // maximum of the scores so far; -inf: no key seen
  float sum[kRows];                              // this thread's part of the sum of exp(score - max)
  Pack<float, kVec> o[kRows][kPiecesV * kVecs];  // sum of exp(score - max) * v
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    bounds[i] = row0 + i < rows.count ? keys_of_rows(row0 + i, row0 + i) : KeyBounds{0, 0};
    max[i] = -INFINITY;
    sum[i] = 0.0f;
#pragma unroll
    for (auto& pack : o[i]) pack = {};
  }

  const KeyBounds range = parts.of(part, keys_of_rows(0, rows.count - 1));
#pragma unroll
  for (KeyBounds& seen : bounds) seen = {::max(seen.begin, range.begin), ::min(seen.end, range.end)};
  for (int key0 = range.begin; key0 < range.end; key0 += kTile) {
    // Scores of keys key0 + tx and key0 + tx + 16.
    float s[kRows][2] = {};
#pragma unroll 1
    for (int c0 = 0; c0 < kQ && (c0 == 0 || c0 < p.head_dim); c0 += kPiece) {
      __syncthreads();  // V of the previous keys, or the previous piece of K, is no longer read
      if (!kListed && (p.features & kRotaryCached)) {
        load_turned_keys<kPiece, kStride>(p, kv_tile, c0, KvRows{p, b, kv_head, key0, range.end, false});
      } else if (kKind != Kind::kQv && (p.features & kBlockScales)) {
        load_scaled_tile<kPiece, kStride>(p, kv_tile, c0, kv_rows(key0, range.end, false));
      } else {
        load_tile<kPiece, kStride>(keys, kv_tile, c0, kv_rows(key0, range.end, false));
      }
      __syncthreads();
      const int width = kQ % kPiece == 0 || c0 + kPiece <= kQ ? kPiece : kQ - c0;
      multiply_piece<kQStride, kStride>(q_tile + row0 * kQStride + c0, kv_tile, tx, width, s);
    }
    if constexpr (kKind == Kind::kQv) {  // the pieces of qv come from memory for each tile of keys
      float* const qv_tile = reinterpret_cast<float*>(row_bias + kTile);
      const TileSource second =
          tile_source(p.qv, p.dtype_q, p.head_dim_v, 0, p.qv_stride_token, p.qv_stride_head);
#pragma unroll 1
      for (int c0 = 0; c0 < p.head_dim_v; c0 += kPiece) {
        __syncthreads();  // the previous pieces are no longer read
        load_tile<kPiece, kStride>(values, kv_tile, c0, KvRows{p, b, kv_head, key0, range.end, true});
        load_tile<kPiece, kStride>(second, qv_tile, c0, QvRows{p, seq.q_begin, head0, rows});
        __syncthreads();
        multiply_piece<kStride, kStride>(qv_tile + row0 * kStride, kv_tile, tx, kPiece, s);
      }
    }

    // Each optional term has one branch for all scores. A branch per score cost 3 to 8 % on an H100, even
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
    if constexpr (kListed) {
      for_each_score(s, [&](int i, int u, float& x) {
        const int key = key0 + tx + u * kLanes;
        if (key < bounds[i].end && list[key] < 0) x = -INFINITY;
      });
    } else if (p.features & kCustomMask) {
      const uint32_t hidden = hidden_scores(p, b, seq.k_len, rows, row0, key0 + tx);
      for_each_score(s, [&](int i, int u, float& x) { x = hidden >> (2 * i + u) & 1 ? -INFINITY : x; });
    }

#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float new_max = fmaxf(max[i], row_max(fmaxf(s[i][0], s[i][1])));
      // The subtraction comes first, because the difference is exact near the maximum. The rounding of a
      // product max * kLog2E would enter the exponent, and at scores of 1e9 no weight would be left.
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
    if (p.features & kDropout) {  // applies to the weights of V, not to their sum
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
      __syncthreads();  // K, or the previous piece of V, is no longer read; P is complete
      if (kKind != Kind::kQv && (p.features & kBlockScales)) {
        load_scaled_tile<kPiece, kStride>(p, kv_tile, piece * kPiece, kv_rows(key0, range.end, true));
      } else {
        load_tile<kPiece, kStride>(values, kv_tile, piece * kPiece, kv_rows(key0, range.end, true));
      }
      __syncthreads();

#pragma unroll 2
      for (int j = 0; j < kTile; j += 4) {
        Pack<float, 4> weight[kRows];  // weights of keys j .. j + 3
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
    if (tx == 0)
      p.lse[part * parts.lse_stride + any_lse_offset(p, q_row, head)] = lse * lse_unit<float>(p.features);
    const int64_t at = part * parts.out_stride + out_offset(p, q_row, head);
    const float stored_unit = out_divisor(p);
#pragma unroll
    for (int g = 0; g < kPiecesV * kVecs; ++g) {
#pragma unroll
      for (int c = 0; c < kVec; ++c) {
        const int channel = kVec * (tx + g * kLanes) + c;
        if (channel < p.head_dim_v) {
          // A row without keys, with or without a sink, gets 0: its descale may be NaN and is not applied.
          float x = total == 0.0f ? 0.0f : o[i][g].x[c] / divisor;
          if (total != 0.0f) x = x * v_descale(p, b, kv_head, channel) / stored_unit;
          store_output(p.dtype_out, p.out, at + channel, x);
        }
      }
    }
  }
}

/// Tiles of the query rows of one sequence and KV head. With lists, rows of a tile are of one query.
template <bool kListed>
struct RowTiles {
  int group;

  __host__ __device__ int64_t count(int64_t q_len) const {
    return kListed ? q_len * ((group + kTile - 1) / kTile) : (q_len * group + kTile - 1) / kTile;
  }
  __device__ TileRows at(int64_t tile, int q_len) const {
    TileRows rows;
    rows.group = group;
    if constexpr (kListed) {
      const int of_query = (group + kTile - 1) / kTile;
      rows.first_token = static_cast<int>(tile / of_query);
      rows.first_in_group = static_cast<int>(tile % of_query) * kTile;
      rows.count = min(kTile, group - rows.first_in_group);
    } else {
      const int64_t first = tile * kTile, left = int64_t{q_len} * group - first;
      rows.first_token = static_cast<int>(first / group);
      rows.first_in_group = static_cast<int>(first % group);
      rows.count = static_cast<int>(left < kTile ? left : kTile);
    }
    return rows;
  }
};

/// Grid: x tiles of query rows, y KV heads, z parts of sequences, each with a stride where the grid is
/// smaller than the problem. Lengths are read here, not on the host, so that a captured graph follows them.
template <int kD, Kind kKind>
__global__ void __launch_bounds__(kThreads, kD <= 128 ? 3 : 2)
    attention_kernel(const __grid_constant__ AttentionParams p, const KeyParts parts) {
  extern __shared__ float4 shared[];  // float4 for its alignment
  const RowTiles<kKind == Kind::kListed> tiles{p.num_heads_q / p.num_heads_kv};
  for (int64_t z = blockIdx.z; z < int64_t{p.batch} * parts.count; z += gridDim.z) {
    const int b = static_cast<int>(z / parts.count);
    const int part = static_cast<int>(z % parts.count);
    const SeqRange seq = seq_range(p, b);
    const int64_t num_tiles = tiles.count(seq.q_len);
    for (int kv_head = static_cast<int>(blockIdx.y); kv_head < p.num_heads_kv;
         kv_head += static_cast<int>(gridDim.y)) {
      for (int64_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
        attend_tile<kD, kKind>(p, parts, part, b, seq, kv_head, tiles.at(tile, seq.q_len),
                               reinterpret_cast<float*>(shared));
      }
    }
  }
}

}  // namespace attnbench::cuda_simt
