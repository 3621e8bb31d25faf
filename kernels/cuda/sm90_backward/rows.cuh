// The small kernels around the main one. Before it: LSE and delta of each row, in whole tiles, the order of the work,
// and zeros. Behind it: dq from its sums, and the gradients of sinks.
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/quad.cuh"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/sm90_backward/shape.cuh"

namespace attnbench::sm90_backward {

inline constexpr int kRowThreads = 256;
inline constexpr int kSinkThreads = 1024;
inline constexpr int kLengthClasses = 256;

/// Rows of a padded tile.
struct TileRows {
  int sequence;
  int row0;  ///< of the tile, in its sequence
  int q_row, q_len;
};

/// The sequence whose rows tile `tile` is kept for; q_len is 0 where there is none. All threads call it alike.
template <Shape kShape>
__device__ __forceinline__ TileRows rows_of_tile(const KernelParams& p, int tile) {
  constexpr int kM = kShape.block_m;
  const int32_t* cu = p.attention.cu_seqlens_q;
  int low = 0, high = p.attention.batch - 1;  // the last sequence that begins at the tile or before
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_tile(cu[middle], middle, kM) <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int q_row = cu[low];
  const int row0 = (tile - first_tile(q_row, low, kM)) * kM;
  if (row0 < 0) return {low, 0, q_row, 0};  // ahead of the first sequence
  return {low, row0, q_row, cu[low + 1] - q_row};
}

/// The keys from `first_key` on of sequence b.
__device__ __forceinline__ Keys keys_of(const KernelParams& p, int b, int first_key, int block_m) {
  const AttentionBackwardParams& a = p.attention;
  Keys k{};
  k.q_row = a.cu_seqlens_q[b];
  k.q_len = a.cu_seqlens_q[b + 1] - k.q_row;
  k.k_row = a.cu_seqlens_k[b];
  k.k_len = a.cu_seqlens_k[b + 1] - k.k_row;
  k.first_key = first_key;
  k.tile_base = first_tile(k.q_row, b, block_m);
  k.diagonal = static_cast<int32_t>(first_diagonal(a, k.q_len, k.k_len));
  const RowBounds rows = rows_that_see(a, first_key, min(first_key + kBlockN, k.k_len) - 1, k.q_len, k.k_len);
  k.tile_begin = rows.begin / block_m;
  k.tile_end = rows.begin < rows.end ? (rows.end + block_m - 1) / block_m : k.tile_begin;
  return k;
}

/// Writes the items of a sequence in the order in which blocks take them. The heads come in sections whose queries
/// fit L2, in a section the keys in ascending order, and for the same keys all heads. So under a causal mask the
/// longest come first, and blocks that add to the same rows of dq come far enough apart not to wait for each other.
/// `first`: number of the sequence's first Keys. A warp calls it.
__device__ __forceinline__ void order_sequence(const KernelParams& p, int b, uint32_t first, uint32_t blocks,
                                               int block_m) {
  const AttentionBackwardParams& a = p.attention;
  const auto heads = static_cast<uint32_t>(a.num_heads_kv);
  const int64_t rows = static_cast<int64_t>(max(a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b], 1)) * p.group;
  const auto width = static_cast<uint32_t>(max(int64_t{1}, min(int64_t{heads}, p.section_rows / rows)));
  for (uint32_t i = threadIdx.x % 32; i < blocks; i += 32)
    p.keys[first + i] = keys_of(p, b, static_cast<int>(i) * kBlockN, block_m);
  for (uint32_t i = threadIdx.x % 32; i < blocks * heads; i += 32) {
    const uint32_t section = i / (blocks * width), in_section = i % (blocks * width);
    const uint32_t wide = min(width, heads - section * width);
    p.works[first * heads + i] = {static_cast<int32_t>(first + in_section / wide),
                                  static_cast<int32_t>(section * width + in_section % wide)};
  }
}

/// Sorts the sequences by length into classes, the longest first, and writes their items. One block. Which sequence
/// of a class comes first is left open: results do not depend on it.
__device__ __forceinline__ void order_work(const KernelParams& p, int block_m) {
  __shared__ uint32_t
      blocks_before[kLengthClasses];  // of the classes before; later of their sequences so far
  const AttentionBackwardParams& a = p.attention;
  const auto class_of = [&](int b) {  // the length's leading bit and the three behind it, descending
    const auto length = static_cast<uint32_t>(a.cu_seqlens_q[b + 1] - a.cu_seqlens_q[b]);
    if (length < 8) return kLengthClasses - 1 - static_cast<int>(length);
    const int bit = 31 - __clz(static_cast<int>(length));
    return kLengthClasses - 1 - (bit * 8 + static_cast<int>(length >> (bit - 3) & 7));
  };
  const auto blocks_of = [&](int b) {
    return static_cast<uint32_t>(a.cu_seqlens_k[b + 1] - a.cu_seqlens_k[b] + kBlockN - 1) / kBlockN;
  };
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (thread < kLengthClasses) blocks_before[thread] = 0;
  __syncthreads();
  for (int b = thread; b < a.batch; b += threads) atomicAdd(&blocks_before[class_of(b)], blocks_of(b));
  __syncthreads();
  if (thread == 0) {
    uint32_t sum = 0;
    for (uint32_t& blocks : blocks_before) {
      const uint32_t own = blocks;
      blocks = sum;
      sum += own;
    }
    p.head->items = sum * static_cast<uint32_t>(a.num_heads_kv);
  }
  __syncthreads();
  for (int b = thread / 32; b < a.batch; b += threads / 32) {
    const uint32_t blocks = blocks_of(b);
    uint32_t first = 0;
    if (thread % 32 == 0) first = atomicAdd(&blocks_before[class_of(b)], blocks);
    order_sequence(p, b, __shfl_sync(~0u, first, 0), blocks, block_m);
  }
}

/// Block (0, y) orders the work; block (1 + t, y) has tile t of heads y, y + gridDim.y, ...
template <class Choice>
__global__ void __launch_bounds__(kRowThreads) prepare_kernel(const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  constexpr int kM = kShape.block_m, kLanes = kShape.head_dim / 8;  // lanes of a row, 8 channels each
  if (blockIdx.x == 0) {
    if (blockIdx.y == 0) order_work(p, kM);
    return;
  }
  const AttentionBackwardParams& a = p.attention;
  const int tile = static_cast<int>(blockIdx.x) - 1;
  const TileRows rows = rows_of_tile<kShape>(p, tile);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int head = static_cast<int>(blockIdx.y); head < a.num_heads_q; head += static_cast<int>(gridDim.y)) {
    const int64_t padded = (static_cast<int64_t>(head) * p.padded_tiles + tile) * kM;
    for (int r = static_cast<int>(threadIdx.x) / kLanes; r < kM; r += kRowThreads / kLanes) {
      const bool exists = rows.row0 + r < rows.q_len;
      const int64_t token = static_cast<int64_t>(rows.q_row) + rows.row0 + r;
      float sum = 0.0f;
      if (exists) {
        const auto* o = reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a.out) +
                                                       token * a.out_stride_token + head * a.out_stride_head);
        const auto* g =
            reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a.d_out) +
                                           token * a.d_out_stride_token + head * a.d_out_stride_head);
        const uint4 ow = o[lane], gw = g[lane];
        const uint32_t os[4] = {ow.x, ow.y, ow.z, ow.w}, gs[4] = {gw.x, gw.y, gw.z, gw.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 x = hopper::unpack_pair<kShape.dtype>(os[i]),
                       y = hopper::unpack_pair<kShape.dtype>(gs[i]);
          sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
        }
      }
#pragma unroll
      for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
      if (lane == 0) {
        float lse = INFINITY;
        if (exists) lse = a.lse[head * a.lse_stride_head + token];
        p.lse2[padded + r] = lse == -INFINITY ? INFINITY : lse * kLog2E;
        p.delta[padded + r] = sum;
      }
    }
    if (p.added != nullptr) {
      if (threadIdx.x < kTeams)
        p.added[(static_cast<int64_t>(threadIdx.x) * a.num_heads_q + head) * p.padded_tiles + tile] = 0;
    } else {
      auto* sums = reinterpret_cast<float4*>(p.dq_sum + padded * kShape.head_dim);
      for (int i = static_cast<int>(threadIdx.x); i < kM * kShape.head_dim / 4; i += kRowThreads)
        sums[i] = float4{};
    }
  }
}

/// Block (t, y) writes dq of tile t of heads y, y + gridDim.y, ...; the block behind the last tile, of each head, the
/// gradient of its sink.
template <class Choice>
__global__ void __launch_bounds__(kRowThreads) finish_kernel(const __grid_constant__ KernelParams p) {
  constexpr Shape kShape = Choice::kShape;
  using D = Derived<kShape>;
  const AttentionBackwardParams& a = p.attention;
  const int tile = static_cast<int>(blockIdx.x);
  const TileRows rows = rows_of_tile<kShape>(p, tile);
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
  if (rows.row0 >= rows.q_len) return;
  const int last = min(rows.row0 + D::kM, rows.q_len) - 1;
  const int32_t k_len = a.cu_seqlens_k[rows.sequence + 1] - a.cu_seqlens_k[rows.sequence];
  const KeyBounds keys = visible_keys_of_rows(a, rows.row0, last, rows.q_len, k_len);
  const bool has_sums = keys.begin < keys.end;  // otherwise no item has stored any
  for (int head = static_cast<int>(blockIdx.y); head < a.num_heads_q; head += static_cast<int>(gridDim.y)) {
    for (int i = static_cast<int>(threadIdx.x) / 128; i < 2 * kTeams; i += kRowThreads / 128) {
      const int part = i / 2, quarter = i % 2;  // 32 columns of a part
      const auto* sums = reinterpret_cast<const float4*>(dq_part<kShape>(p, head, tile, part));
      float4 x[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = has_sums ? sums[(quarter * 4 + j) * 128 + thread] : float4{};
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t word[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          word[j] = hopper::pack_pair<kShape.dtype>((h == 0 ? x[j].x : x[j].z) * a.softmax_scale,
                                                    (h == 0 ? x[j].y : x[j].w) * a.softmax_scale);
        }
        const uint4 channels = hopper::quad_transpose(word[0], word[1], word[2], word[3], lane);
        const int row = rows.row0 + thread / 32 * 16 + lane / 4 + 8 * h + (D::kRowTiles > 1 ? 64 * part : 0);
        const int channel = (D::kChunks > 1 ? 64 * part : 0) + 32 * quarter + lane % 4 * 8;
        uint16_t* to = static_cast<uint16_t*>(a.dq) +
                       (static_cast<int64_t>(rows.q_row) + row) * a.dq_stride_token +
                       head * a.dq_stride_head + channel;
        if (row < rows.q_len) *reinterpret_cast<uint4*>(to) = channels;
      }
    }
  }
}

/// One block per head. Each thread adds its rows in order, then the block adds the threads' sums in a tree. Rows
/// that do not exist have a weight and a delta of zero.
template <class Choice>
__global__ void __launch_bounds__(kSinkThreads) dsinks_kernel(const __grid_constant__ KernelParams p) {
  __shared__ float sums[kSinkThreads];
  const AttentionBackwardParams& a = p.attention;
  const int64_t rows = static_cast<int64_t>(p.padded_tiles) * Choice::kShape.block_m;
  const int thread = static_cast<int>(threadIdx.x);
  const float sink2 = a.sinks[blockIdx.x] * kLog2E;
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * rows + thread; i < (blockIdx.x + 1) * rows; i += kSinkThreads)
    sum = fmaf(-exp2f(sink2 - p.lse2[i]), p.delta[i], sum);
  sums[thread] = sum;
  __syncthreads();
  for (int half = kSinkThreads / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    __syncthreads();
  }
  if (thread == 0) a.dsinks[blockIdx.x] = sums[0];
}

inline unsigned heads_at_once(int32_t heads) { return static_cast<unsigned>(heads < 16 ? heads : 16); }

template <class Choice>
cudaError_t launch_prepare(const KernelParams& p, cudaStream_t stream) {
  const cudaError_t error = cudaMemsetAsync(p.head, 0, sizeof(Head), stream);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>(p.padded_tiles) + 1, heads_at_once(p.attention.num_heads_q));
  prepare_kernel<Choice><<<grid, kRowThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

template <class Choice>
cudaError_t launch_finish(const KernelParams& p, cudaStream_t stream) {
  const AttentionBackwardParams& a = p.attention;
  if (p.padded_tiles > 0) {
    const dim3 grid(static_cast<unsigned>(p.padded_tiles), heads_at_once(a.num_heads_q));
    finish_kernel<Choice><<<grid, kRowThreads, 0, stream>>>(p);
  }
  if (a.features & kSinks)
    dsinks_kernel<Choice><<<static_cast<unsigned>(a.num_heads_q), kSinkThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace attnbench::sm90_backward
