#include "kernels/cuda/sm90_prefill/merge_splits.h"

#include "kernels/common/score.h"
#include "kernels/cuda/common/early_start.h"
#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/sm90_prefill/cascade_source.cuh"
#include "kernels/cuda/sm90_prefill/split_source.cuh"

namespace attnbench::sm90_prefill {
namespace {

/// States that a warp has in flight.
ATTNBENCH_HD constexpr int batch_of(int head_dim) { return head_dim == 256 ? 4 : 8; }

/// Threads of a block, and blocks per multiprocessor, which all run at once: as many as registers allow
/// without spills.
ATTNBENCH_HD constexpr int threads_of(int head_dim) { return head_dim == 256 ? 512 : 384; }
ATTNBENCH_HD constexpr int blocks_of(int head_dim) { return head_dim == 256 ? 1 : 2; }

/// Stores kCount channels, rounded to kType.
template <DType kType, int kCount>
__device__ __forceinline__ void store_channels(uint16_t* out, const float (&o)[kCount]) {
  uint32_t words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) words[i] = hopper::pack_pair<kType>(o[2 * i], o[2 * i + 1]);
  if constexpr (kCount == 2) {
    *reinterpret_cast<uint32_t*>(out) = words[0];
  } else if constexpr (kCount == 4) {
    *reinterpret_cast<uint2*>(out) = make_uint2(words[0], words[1]);
  } else {
    *reinterpret_cast<uint4*>(out) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

/// A row of a split tile, and its states.
struct Row {
  bool exists;
  int splits;     ///< with the suffix of a cascade
  int64_t first;  ///< row of its first state; those of further splits lie `stride` rows apart
  int64_t q_row;
  int head;
  int64_t suffix = 0;  ///< cascade: row of the suffix's state, the last one
};

/// Merges a row: a warp, of which each lane has kHeadDim / 32 neighbouring channels. Sums run in the order of
/// the splits, so results repeat bit for bit.
template <int kHeadDim, bool kCascade>
__device__ __forceinline__ void merge_row(const KernelParams& p, const MergeParams& m, const Row& row,
                                          int64_t stride, int lane) {
  constexpr int kVector = kHeadDim / 32;
  constexpr int kBatch = batch_of(kHeadDim);
  float o[kVector] = {};
  float top = -INFINITY, total = 0.0f;  // weights are 2^(reference - top)
#pragma unroll 1
  for (int first = 0; first < row.splits; first += kBatch) {
    const int left = row.splits - first;
    const int64_t at = row.first + first * stride;
    const int mine = lane % kBatch;
    float v[kBatch][kVector];
    const float* next = p.partial_out + at * kHeadDim + lane * kVector;
    const float* suffix = kCascade ? p.partial_out + row.suffix * kHeadDim + lane * kVector : nullptr;
#pragma unroll
    for (int j = 0; j < kBatch; ++j, next += stride * kHeadDim) {
      const float* from = kCascade && j == left - 1 ? suffix : next;
#pragma unroll
      for (int i = 0; i < kVector; i += 2) {
        const float2 x = j < left ? __ldcg(reinterpret_cast<const float2*>(from + i)) : float2{};
        v[j][i] = x.x;
        v[j][i + 1] = x.y;
      }
    }
    const int64_t of_sum = kCascade && mine == left - 1 ? row.suffix : at + mine * stride;
    const float2 sum = mine < left ? __ldcg(p.partial_sum + of_sum) : float2{-INFINITY, 0.0f};
    float higher = fmaxf(top, sum.x);
#pragma unroll
    for (int step = kBatch / 2; step > 0; step /= 2) {
      higher = fmaxf(higher, __shfl_xor_sync(~0u, higher, step));
    }
    const float base = higher == -INFINITY ? 0.0f : higher;
    const float kept = hopper::exp2_approx(top - base);
    const float weight = hopper::exp2_approx(sum.x - base);
    top = higher;
    total *= kept;
#pragma unroll
    for (int i = 0; i < kVector; ++i) o[i] *= kept;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const float w = __shfl_sync(~0u, weight, j);
      total = fmaf(w, __shfl_sync(~0u, sum.y, j), total);
#pragma unroll
      for (int i = 0; i < kVector; ++i) o[i] = fmaf(w, v[j][i], o[i]);
    }
  }
  // The sink has no value. If a row sees no key, it alone is the denominator.
  const float sink = p.sinks != nullptr ? __ldg(p.sinks + row.head) * kLog2E : -INFINITY;
  const float higher = fmaxf(top, sink);
  const float base = higher == -INFINITY ? 0.0f : higher;
  const float kept = hopper::exp2_approx(top - base);
  total = total * kept + hopper::exp2_approx(sink - base);
  const float normaliser = total == 0.0f ? 0.0f : kept * hopper::reciprocal_approx(total);  // NaN stays NaN
#pragma unroll
  for (int i = 0; i < kVector; ++i) o[i] *= normaliser;
  uint16_t* out = static_cast<uint16_t*>(p.out) + row.q_row * p.out_stride_token +
                  row.head * p.out_stride_head + lane * kVector;
  if (m.dtype == DType::kBf16) {
    store_channels<DType::kBf16>(out, o);
  } else {
    store_channels<DType::kFp16>(out, o);
  }
  if (lane == 0) {
    p.lse[row.head * p.lse_stride_head + row.q_row] =
        total == 0.0f ? -INFINITY : (base + __log2f(total)) * kLn2;
  }
}

/// A warp takes a row at a time. What can be known of its first row is computed before the states are there.
template <int kHeadDim>
__global__ void __launch_bounds__(threads_of(kHeadDim), blocks_of(kHeadDim))
    merge_kernel(const __grid_constant__ KernelParams p, const __grid_constant__ MergeParams m) {
  constexpr int kWarps = threads_of(kHeadDim) / 32;
  const int lane = threadIdx.x % 32;
  const SplitSequence own(p, m.block_n, lane);
  const int own_tiles = own.splits > 1 ? own.tiles : 0;
  const int tiles_before = sum_of_lanes_before(own_tiles, lane);
  const int rows_of_tile = p.tokens_per_tile * p.heads_per_tile;
  const int rows = __reduce_add_sync(~0u, own_tiles) * p.num_head_tiles * rows_of_tile;
  const auto row_at = [&](int i) {
    const int head_tiles_before = i / rows_of_tile;
    const int row = i - head_tiles_before * rows_of_tile;
    const int index = head_tiles_before / p.num_head_tiles;
    const int head_tile = head_tiles_before - index * p.num_head_tiles;
    const int owner = owner_of(index, tiles_before, own_tiles);
    const int tile = index - __shfl_sync(~0u, tiles_before, owner);
    const int splits = __shfl_sync(~0u, own.splits, owner);
    const int in_tile = token_of_row(p, row);
    const int token = tile * p.tokens_per_tile + in_tile;
    const int first_state = __shfl_sync(~0u, own.first_state, owner) + tile * splits;
    return Row{token < __shfl_sync(~0u, own.q_len, owner), splits,
               (int64_t{first_state} * p.num_head_tiles + head_tile) * m.block_m + row,
               __shfl_sync(~0u, own.q_row, owner) + token,
               head_tile * p.heads_per_tile + row - in_tile * p.heads_per_tile};
  };
  const int64_t stride = int64_t{p.num_head_tiles} * m.block_m;
  int i = blockIdx.x * kWarps + threadIdx.x / 32;
  Row row{};
  if (i < rows) row = row_at(i);
  cudaGridDependencySynchronize();  // all states are there
  while (i < rows) {
    if (row.exists) merge_row<kHeadDim, false>(p, m, row, stride, lane);
    i += gridDim.x * kWarps;
    if (i < rows) row = row_at(i);
  }
}

/// The same for the states of a cascade, whose rows are those of all queries. Neighbouring warps take the heads of
/// a query.
template <int kHeadDim>
__global__ void __launch_bounds__(threads_of(kHeadDim), blocks_of(kHeadDim))
    merge_cascade_kernel(const __grid_constant__ KernelParams p, const __grid_constant__ MergeParams m) {
  constexpr int kWarps = threads_of(kHeadDim) / 32;
  const int lane = threadIdx.x % 32;
  const CascadePrefix prefix(p, m.block_n, lane);
  const int heads = p.num_head_tiles * p.heads_per_tile;
  const int rows = (prefix.q_end - prefix.q_begin) * heads;
  const int64_t stride = int64_t{p.num_head_tiles} * m.block_m;
  cudaGridDependencySynchronize();  // all states are there
  for (int i = blockIdx.x * kWarps + threadIdx.x / 32; i < rows; i += gridDim.x * kWarps) {
    const int token = i / heads;
    const int head = i - token * heads;
    const int tile = token / p.tokens_per_tile;
    const int head_tile = head / p.heads_per_tile;
    const int row_in_tile =
        (token - tile * p.tokens_per_tile) * p.heads_per_tile + head - head_tile * p.heads_per_tile;
    const int64_t q_row = prefix.q_begin + token;
    const Row row{true,
                  prefix.splits + 1,
                  (int64_t{tile} * prefix.splits * p.num_head_tiles + head_tile) * m.block_m + row_in_tile,
                  q_row,
                  head,
                  p.suffix_row + q_row * heads + head};
    merge_row<kHeadDim, true>(p, m, row, stride, lane);
  }
}

}  // namespace

cudaError_t launch_merge(const KernelParams& p, const MergeParams& merge, int head_dim, cudaStream_t stream) {
  const auto kernel = merge.cascade     ? merge_cascade_kernel<128>
                      : head_dim == 64  ? merge_kernel<64>
                      : head_dim == 128 ? merge_kernel<128>
                                        : merge_kernel<256>;
  return hopper::launch_early(kernel, blocks_of(head_dim) * p.multiprocessors, threads_of(head_dim), 0, true,
                              stream, p, merge);
}

}  // namespace attnbench::sm90_prefill
