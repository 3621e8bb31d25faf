#include "kernels/cuda/sm90_prefill/merge_splits.h"

#include "kernels/cuda/common/launch_as.h"
#include "kernels/cuda/sm90_prefill/merge_row.cuh"
#include "kernels/cuda/sm90_prefill/split_source.cuh"

namespace attnbench::sm90_prefill {
namespace {

/// By-value parameter of the kernels.
struct MergeParams {
  int32_t block_m;
  int32_t block_n;
  DType dtype;  ///< of O: bf16 or fp16
};

/// Threads of a block, and blocks per multiprocessor, which all run at once: as many as registers allow
/// without spills.
ATTNBENCH_HD constexpr int threads_of(int head_dim) { return head_dim == 256 ? 512 : 384; }
ATTNBENCH_HD constexpr int blocks_of(int head_dim) { return head_dim == 256 ? 1 : 2; }

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
    if (row.exists) merge_row<kHeadDim, false>(p, m.dtype, row, stride, lane);
    i += gridDim.x * kWarps;
    if (i < rows) row = row_at(i);
  }
}

/// The same for launches of sm90_prefill_fixed, whose split tiles are in a list.
template <int kHeadDim>
__global__ void __launch_bounds__(threads_of(kHeadDim), blocks_of(kHeadDim))
    merge_listed_kernel(const __grid_constant__ KernelParams p, const __grid_constant__ MergeParams m) {
  constexpr int kWarps = threads_of(kHeadDim) / 32;
  const int lane = threadIdx.x % 32;
  const int rows_of_tile = p.tokens_per_tile * p.heads_per_tile;
  const int64_t stride = int64_t{p.num_head_tiles} * m.block_m;
  cudaGridDependencySynchronize();  // the list and all states are there
  const int rows = __ldcg(&p.schedule->num_split_tiles) * p.num_head_tiles * rows_of_tile;
  for (int i = blockIdx.x * kWarps + threadIdx.x / 32; i < rows; i += gridDim.x * kWarps) {
    const int head_tiles_before = i / rows_of_tile;
    const int row = i - head_tiles_before * rows_of_tile;
    const int index = head_tiles_before / p.num_head_tiles;
    const int head_tile = head_tiles_before - index * p.num_head_tiles;
    const int4 tile = __ldcg(reinterpret_cast<const int4*>(p.split_tiles + index));  // as SplitTile
    const int token = token_of_row(p, row);
    if (token >= tile.y) continue;
    const Row at{true, tile.z, (int64_t{tile.w} * p.num_head_tiles + head_tile) * m.block_m + row,
                 tile.x + token, head_tile * p.heads_per_tile + row - token * p.heads_per_tile};
    merge_row<kHeadDim, false>(p, m.dtype, at, stride, lane);
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
    const Row row = row_of_cascade(p, prefix, m.block_m, prefix.q_begin + token, head);
    merge_row<kHeadDim, true>(p, m.dtype, row, stride, lane);
  }
}

}  // namespace

cudaError_t launch_merge(const KernelParams& p, const Instance& instance, cudaStream_t stream) {
  const int head_dim_v = instance.head_dim_v;
  const MergeParams merge{instance.block_m, instance.block_n, instance.dtype};
  const auto of_width = [head_dim_v](auto* of_64, auto* of_128, auto* of_256) {
    return head_dim_v == 64 ? of_64 : head_dim_v == 128 ? of_128 : of_256;
  };
  const auto kernel = instance.cascade  ? merge_cascade_kernel<128>
                      : instance.listed ? of_width(merge_listed_kernel<64>, merge_listed_kernel<128>,
                                                   merge_listed_kernel<256>)
                                        : of_width(merge_kernel<64>, merge_kernel<128>, merge_kernel<256>);
  return hopper::launch_as(hopper::Start::kEarly, kernel, blocks_of(head_dim_v) * p.multiprocessors,
                           threads_of(head_dim_v), 0, stream, p, merge);
}

}  // namespace attnbench::sm90_prefill
