// attention_backward in two passes over the same tiles: one CTA per tile of queries sums dq over the keys, and
// one CTA per tile of keys sums dk and dv over the queries and the heads that share the KV head. Both compute
// P and dS again. So no sum needs atomics, and results do not depend on the order of CTAs.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/contract/dropout.h"
#include "kernels/cuda/simt/launch.h"
#include "kernels/cuda/simt/load.cuh"
#include "kernels/cuda/simt/store.cuh"

namespace attnbench::cuda_simt {
namespace {

constexpr int kTeam = 256;  ///< threads of a CTA, as a grid of 16 x 16
constexpr int kSide = 16;
constexpr int kMaxGridYZ = 65535;

/// Shapes of a tile. kD: head_dim and head_dim_v, padded.
template <int kD>
struct BackwardWidths {
  static constexpr int kRows = kD <= 128 ? 32 : 16;  ///< queries of a tile, and keys
  static constexpr int kSub = kRows / kSide;         ///< rows and keys of a thread, 16 apart
  static constexpr int kStride = kD + kPad;          ///< floats from row to row in shared memory
  static constexpr int kScoreStride = kRows + kPad;
  static constexpr int kVec = kD / kSide < 4 ? kD / kSide : 4;  ///< neighbouring channels of a thread
  static constexpr int kVecs = kD / (kSide * kVec);
  /// Tiles of q, dO, K and V, and of W and dS.
  static constexpr int kSharedBytes = (4 * kRows * kStride + 2 * kRows * kScoreStride) * 4;
};

/// Queries or keys of one sequence, as packed rows.
struct Lengths {
  int q_begin, q_len, k_begin, k_len;
};
__device__ Lengths lengths_of(const AttentionBackwardParams& p, int b) {
  const int q = p.cu_seqlens_q[b], k = p.cu_seqlens_k[b];
  return {q, p.cu_seqlens_q[b + 1] - q, k, p.cu_seqlens_k[b + 1] - k};
}

/// Rows first .. first + count - 1 of a tensor and one head; the tile's further rows are not read.
struct HeadRows {
  int64_t first, stride_token, shift;
  int count;
  __device__ int64_t offset(int r) const { return r < count ? (first + r) * stride_token + shift : kNoRow; }
  __device__ float scale(int) const { return 1.0f; }
};

template <int kD>
__device__ void load_head(const void* base, DType type, int dim, int64_t stride_token, int64_t stride_head,
                          int head, int64_t first, int count, float* tile) {
  using W = BackwardWidths<kD>;
  load_tile<kD, W::kStride, W::kRows, kTeam>(tile_source(base, type, dim, 0, stride_token, stride_head), tile,
                                             0, HeadRows{first, stride_token, head * stride_head, count});
}

/// LSE and delta of a row.
struct RowState {
  float lse, delta;
};

/// W and dS of a pair from its products q.k and dO.v. `diagonal`: the key on the row's diagonal.
struct PairTerms {
  float w, ds;
};
__device__ PairTerms pair_terms(const AttentionBackwardParams& p, const RowState& row, float slope,
                                int diagonal, int head, int64_t token, int key, float qk, float dov) {
  float score = qk * p.softmax_scale;
  float derivative = 1.0f;
  if (p.softcap > 0.0f) {
    const float t = tanhf(score / p.softcap);
    score = p.softcap * t;
    derivative = (1.0f - t) * (1.0f + t);
  }
  if (p.features & kAlibi) score += alibi_bias(slope, ::abs(diagonal - key), p.alibi_sqrt != 0);
  const float weight = exp2f((score - row.lse) * kLog2E);  // the difference first: see kernel.cuh
  float keep = 1.0f;
  if (p.features & kDropout) {
    keep = dropout_keeps(p.dropout_seed, p.dropout_offset, head, token, key, dropout_threshold(p.p_dropout))
               ? dropout_scale(p.p_dropout)
               : 0.0f;
  }
  return {weight * keep, weight * (dov * keep - row.delta) * derivative};
}

/// sum[i][u] := a row ty + 16 i times b row tx + 16 u, over kD channels.
template <int kD>
__device__ void multiply(const float* a, const float* b,
                         float (&sum)[BackwardWidths<kD>::kSub][BackwardWidths<kD>::kSub]) {
  using W = BackwardWidths<kD>;
  const int tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
  for (auto& row : sum) {
#pragma unroll
    for (float& x : row) x = 0.0f;
  }
#pragma unroll 4
  for (int c = 0; c < kD; c += 4) {
    Pack<float, 4> right[W::kSub];
#pragma unroll
    for (int u = 0; u < W::kSub; ++u)
      right[u] = *reinterpret_cast<const Pack<float, 4>*>(b + (tx + u * kSide) * W::kStride + c);
#pragma unroll
    for (int i = 0; i < W::kSub; ++i) {
      const auto left = *reinterpret_cast<const Pack<float, 4>*>(a + (ty + i * kSide) * W::kStride + c);
#pragma unroll
      for (int u = 0; u < W::kSub; ++u) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][u] = fmaf(left.x[e], right[u].x[e], sum[i][u]);
      }
    }
  }
}

/// The thread's part of a tile of sums: rows ty + 16 i, channels kVec (tx + 16 g) ...
template <int kD>
struct Sums {
  using W = BackwardWidths<kD>;
  Pack<float, W::kVec> x[W::kSub][W::kVecs] = {};

  /// Adds sum_r weight(i, r) * row r of `tile`; weight(i, r) belongs to row ty + 16 i of the sums.
  template <class Weight>
  __device__ void add(const float* tile, Weight weight) {
    const int tx = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll 4
    for (int r = 0; r < W::kRows; ++r) {
#pragma unroll
      for (int g = 0; g < W::kVecs; ++g) {
        const auto v = *reinterpret_cast<const Pack<float, W::kVec>*>(tile + r * W::kStride +
                                                                      W::kVec * (tx + g * kSide));
#pragma unroll
        for (int i = 0; i < W::kSub; ++i) {
          const float factor = weight(i, r);
#pragma unroll
          for (int c = 0; c < W::kVec; ++c) x[i][g].x[c] = fmaf(factor, v.x[c], x[i][g].x[c]);
        }
      }
    }
  }

  /// Writes rows first .. first + count - 1 of one head.
  __device__ void write(DType type, void* out, int64_t first, int count, int64_t stride_token, int64_t shift,
                        int dim, float factor) const {
    const int tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
    for (int i = 0; i < W::kSub; ++i) {
      const int r = ty + i * kSide;
      if (r >= count) continue;
#pragma unroll
      for (int g = 0; g < W::kVecs; ++g) {
#pragma unroll
        for (int c = 0; c < W::kVec; ++c) {
          const int channel = W::kVec * (tx + g * kSide) + c;
          if (channel < dim)
            store_output(type, out, (first + r) * stride_token + shift + channel, x[i][g].x[c] * factor);
        }
      }
    }
  }
};

/// Tiles in shared memory.
template <int kD>
struct Tiles {
  using W = BackwardWidths<kD>;
  float *q, *d_out, *k, *v;  ///< [kRows][kStride]
  float *w, *ds;             ///< [query][key], rows kScoreStride apart
  __device__ explicit Tiles(float* shared)
      : q(shared),
        d_out(q + W::kRows * W::kStride),
        k(d_out + W::kRows * W::kStride),
        v(k + W::kRows * W::kStride),
        w(v + W::kRows * W::kStride),
        ds(w + W::kRows * W::kScoreStride) {}
};

/// Fills w and ds of the tiles for queries row0 .. and keys key0 ..; pairs that the mask hides become 0, whatever
/// their products are. All four tiles must be loaded.
template <int kD>
__device__ void find_pairs(const AttentionBackwardParams& p, const float* delta, int b, const Lengths& n,
                           int head, int row0, int key0, const Tiles<kD>& t) {
  using W = BackwardWidths<kD>;
  const int tx = static_cast<int>(threadIdx.x) % kSide, ty = static_cast<int>(threadIdx.x) / kSide;
  float s[W::kSub][W::kSub], dp[W::kSub][W::kSub];
  multiply<kD>(t.q, t.k, s);
  multiply<kD>(t.d_out, t.v, dp);
  const float slope = alibi_slope(p, b, head);
#pragma unroll
  for (int i = 0; i < W::kSub; ++i) {
    const int row = row0 + ty + i * kSide;
    const bool there = row < n.q_len;
    const KeyBounds seen = there ? visible_keys(p, row, n.q_len, n.k_len) : KeyBounds{0, 0};
    const int64_t token = int64_t{n.q_begin} + row;
    const RowState state =
        there ? RowState{p.lse[head * p.lse_stride_head + token], delta[head * p.total_q + token]}
              : RowState{0.0f, 0.0f};
#pragma unroll
    for (int u = 0; u < W::kSub; ++u) {
      const int key = key0 + tx + u * kSide;
      PairTerms pair{0.0f, 0.0f};
      if (key >= seen.begin && key < seen.end)
        pair = pair_terms(p, state, slope, row + n.k_len - n.q_len, head, token, key, s[i][u], dp[i][u]);
      t.w[(ty + i * kSide) * W::kScoreStride + tx + u * kSide] = pair.w;
      t.ds[(ty + i * kSide) * W::kScoreStride + tx + u * kSide] = pair.ds;
    }
  }
}

template <int kD>
__device__ void load_queries(const AttentionBackwardParams& p, const Lengths& n, int head, int row0,
                             const Tiles<kD>& t) {
  const int count = min(BackwardWidths<kD>::kRows, n.q_len - row0);
  load_head<kD>(p.q, p.dtype, p.head_dim, p.q_stride_token, p.q_stride_head, head, n.q_begin + row0, count,
                t.q);
  load_head<kD>(p.d_out, p.dtype, p.head_dim_v, p.d_out_stride_token, p.d_out_stride_head, head,
                n.q_begin + row0, count, t.d_out);
}

template <int kD>
__device__ void load_keys(const AttentionBackwardParams& p, const Lengths& n, int kv_head, int key0,
                          const Tiles<kD>& t) {
  const int count = min(BackwardWidths<kD>::kRows, n.k_len - key0);
  load_head<kD>(p.k, p.dtype, p.head_dim, p.k_stride_token, p.k_stride_head, kv_head, n.k_begin + key0, count,
                t.k);
  load_head<kD>(p.v, p.dtype, p.head_dim_v, p.v_stride_token, p.v_stride_head, kv_head, n.k_begin + key0,
                count, t.v);
}

/// delta of every row: one warp per (row, head). (Hq, total_q)
__global__ void __launch_bounds__(kTeam)
    delta_kernel(const __grid_constant__ AttentionBackwardParams p, float* delta) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t first = p.cu_seqlens_q[0], rows = p.cu_seqlens_q[p.batch] - first;
  const int64_t step = int64_t{gridDim.x} * (kTeam / 32);
  for (int64_t i = int64_t{blockIdx.x} * (kTeam / 32) + threadIdx.x / 32; i < rows * p.num_heads_q;
       i += step) {
    const int64_t token = first + i / p.num_heads_q;
    const int head = static_cast<int>(i % p.num_heads_q);
    const int64_t o = token * p.out_stride_token + head * p.out_stride_head;
    const int64_t g = token * p.d_out_stride_token + head * p.d_out_stride_head;
    float sum = 0.0f;
    for (int c = lane; c < p.head_dim_v; c += 32)
      sum = fmaf(load_float(p.dtype, p.out, o + c), load_float(p.dtype, p.d_out, g + c), sum);
#pragma unroll
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
    if (lane == 0) delta[head * p.total_q + token] = sum;
  }
}

/// Grid: tiles of queries, query heads, sequences.
template <int kD>
__global__ void __launch_bounds__(kTeam)
    dq_kernel(const __grid_constant__ AttentionBackwardParams p, const float* delta) {
  using W = BackwardWidths<kD>;
  extern __shared__ float4 shared[];
  const Tiles<kD> t(reinterpret_cast<float*>(shared));
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  for (int b = static_cast<int>(blockIdx.z); b < p.batch; b += static_cast<int>(gridDim.z)) {
    const Lengths n = lengths_of(p, b);
    for (int head = static_cast<int>(blockIdx.y); head < p.num_heads_q; head += static_cast<int>(gridDim.y)) {
      const int kv_head = head / (p.num_heads_q / p.num_heads_kv);
      for (int row0 = static_cast<int>(blockIdx.x) * W::kRows; row0 < n.q_len;
           row0 += static_cast<int>(gridDim.x) * W::kRows) {
        const int count = min(W::kRows, n.q_len - row0);
        const KeyBounds range = visible_keys_of_rows(p, row0, row0 + count - 1, n.q_len, n.k_len);
        Sums<kD> dq;
        __syncthreads();  // the tiles are no longer read
        load_queries<kD>(p, n, head, row0, t);
        for (int key0 = range.begin; key0 < range.end; key0 += W::kRows) {
          load_keys<kD>(p, n, kv_head, key0, t);
          __syncthreads();
          find_pairs<kD>(p, delta, b, n, head, row0, key0, t);
          __syncthreads();
          dq.add(t.k, [&](int i, int key) { return t.ds[(ty + i * kSide) * W::kScoreStride + key]; });
          __syncthreads();
        }
        dq.write(p.dtype, p.dq, int64_t{n.q_begin} + row0, count, p.dq_stride_token, head * p.dq_stride_head,
                 p.head_dim, p.softmax_scale);
      }
    }
  }
}

/// Grid: tiles of keys, KV heads, sequences.
template <int kD>
__global__ void __launch_bounds__(kTeam)
    dkv_kernel(const __grid_constant__ AttentionBackwardParams p, const float* delta) {
  using W = BackwardWidths<kD>;
  extern __shared__ float4 shared[];
  const Tiles<kD> t(reinterpret_cast<float*>(shared));
  const int ty = static_cast<int>(threadIdx.x) / kSide;
  const int group = p.num_heads_q / p.num_heads_kv;
  for (int b = static_cast<int>(blockIdx.z); b < p.batch; b += static_cast<int>(gridDim.z)) {
    const Lengths n = lengths_of(p, b);
    for (int kv_head = static_cast<int>(blockIdx.y); kv_head < p.num_heads_kv;
         kv_head += static_cast<int>(gridDim.y)) {
      for (int key0 = static_cast<int>(blockIdx.x) * W::kRows; key0 < n.k_len;
           key0 += static_cast<int>(gridDim.x) * W::kRows) {
        const int count = min(W::kRows, n.k_len - key0);
        const RowBounds range = rows_that_see(p, key0, key0 + count - 1, n.q_len, n.k_len);
        Sums<kD> dk, dv;
        __syncthreads();  // the tiles are no longer read
        load_keys<kD>(p, n, kv_head, key0, t);
        for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          for (int row0 = range.begin; row0 < range.end; row0 += W::kRows) {
            load_queries<kD>(p, n, head, row0, t);
            __syncthreads();
            find_pairs<kD>(p, delta, b, n, head, row0, key0, t);
            __syncthreads();
            dv.add(t.d_out, [&](int i, int row) { return t.w[row * W::kScoreStride + ty + i * kSide]; });
            dk.add(t.q, [&](int i, int row) { return t.ds[row * W::kScoreStride + ty + i * kSide]; });
            __syncthreads();
          }
        }
        dk.write(p.dtype, p.dk, int64_t{n.k_begin} + key0, count, p.dk_stride_token,
                 kv_head * p.dk_stride_head, p.head_dim, p.softmax_scale);
        dv.write(p.dtype, p.dv, int64_t{n.k_begin} + key0, count, p.dv_stride_token,
                 kv_head * p.dv_stride_head, p.head_dim_v, 1.0f);
      }
    }
  }
}

/// One CTA per head. Each thread adds its rows in order, then the CTA adds the threads' sums in a tree.
__global__ void __launch_bounds__(kTeam)
    dsinks_kernel(const __grid_constant__ AttentionBackwardParams p, const float* delta) {
  __shared__ float sums[kTeam];
  for (int head = static_cast<int>(blockIdx.x); head < p.num_heads_q; head += static_cast<int>(gridDim.x)) {
    float sum = 0.0f;
    const int64_t end = p.cu_seqlens_q[p.batch];
    for (int64_t token = p.cu_seqlens_q[0] + static_cast<int64_t>(threadIdx.x); token < end; token += kTeam) {
      const float weight = exp2f((p.sinks[head] - p.lse[head * p.lse_stride_head + token]) * kLog2E);
      sum = fmaf(-weight, delta[head * p.total_q + token], sum);
    }
    __syncthreads();
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = kTeam / 2; half > 0; half /= 2) {
      if (static_cast<int>(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) p.dsinks[head] = sums[0];
  }
}

dim3 grid_of(int64_t longest, int rows, int heads, int batch) {
  const int64_t tiles = (std::max<int64_t>(longest, 1) + rows - 1) / rows;
  return {static_cast<unsigned>(std::min<int64_t>(tiles, INT32_MAX)),
          static_cast<unsigned>(std::min(heads, kMaxGridYZ)),
          static_cast<unsigned>(std::min(batch, kMaxGridYZ))};
}

template <int kD>
KernelStatus launch_widths(const AttentionBackwardParams& p, const float* delta, const LaunchContext& context,
                           KernelMessage* message) {
  using W = BackwardWidths<kD>;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  static_assert(W::kSharedBytes <= 96 * 1024, "sm_86 and sm_89 have 99 KiB per CTA");
  for (const auto kernel : {dq_kernel<kD>, dkv_kernel<kD>}) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, W::kSharedBytes);
    if (error != cudaSuccess) return cuda_status(error, message);
  }
  if (p.total_q > 0) {
    dq_kernel<kD>
        <<<grid_of(p.max_seqlen_q, W::kRows, p.num_heads_q, p.batch), kTeam, W::kSharedBytes, stream>>>(
            p, delta);
  }
  if (p.total_k > 0) {
    dkv_kernel<kD>
        <<<grid_of(p.max_seqlen_k, W::kRows, p.num_heads_kv, p.batch), kTeam, W::kSharedBytes, stream>>>(
            p, delta);
  }
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace

KernelStatus launch_backward(const AttentionBackwardParams& p, const LaunchContext& context,
                             KernelMessage* message) {
  auto* delta = static_cast<float*>(context.workspace);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (p.batch == 0) {
    if (!(p.features & kSinks)) return KernelStatus::kOk;
    return cuda_status(
        cudaMemsetAsync(p.dsinks, 0, sizeof(float) * static_cast<std::size_t>(p.num_heads_q), stream),
        message);
  }
  constexpr int64_t kMostCtas = 1 << 16;
  const int64_t rows = p.total_q * p.num_heads_q;
  if (rows > 0) {
    const auto ctas = static_cast<unsigned>(std::min(kMostCtas, (rows + kTeam / 32 - 1) / (kTeam / 32)));
    delta_kernel<<<ctas, kTeam, 0, stream>>>(p, delta);
  }
  if (p.features & kSinks)
    dsinks_kernel<<<static_cast<unsigned>(p.num_heads_q), kTeam, 0, stream>>>(p, delta);
  const int32_t dim = std::max(p.head_dim, p.head_dim_v);
  if (dim <= 32) return launch_widths<32>(p, delta, context, message);
  if (dim <= 64) return launch_widths<64>(p, delta, context, message);
  if (dim <= 128) return launch_widths<128>(p, delta, context, message);
  return launch_widths<256>(p, delta, context, message);
}

}  // namespace attnbench::cuda_simt
