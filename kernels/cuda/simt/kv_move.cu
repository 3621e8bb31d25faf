// kv_move: copies blocks of a cache, or gathers rows of sequences, in the widest words that the alignment
// allows; rows in e4m3 are multiplied by their descale.
#include <algorithm>
#include <cstdint>

#include "kernels/common/move.h"
#include "kernels/cuda/simt/copy_row.cuh"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kWarps = 8;  ///< warps of a CTA; each takes a row of one head
constexpr int kMaxGrid = 1 << 16;

/// Moves one row of one head with one warp: lane c % 32 handles channel c, or every 32nd word.
__device__ void move_row(const MovedTensor& t, const char* from, char* to, int lane) {
  if (t.descale == nullptr) {
    copy_row(to, from, t.dim * static_cast<int>(dtype_size(t.dtype_src)), lane);
    return;
  }
  const float descale = *t.descale;
  for (int c = lane; c < t.dim; c += 32)
    store_float(t.dtype_dst, to, c, load_float(t.dtype_src, from, c) * descale);
}

/// One warp per (pair, head, row), the last fastest; a row's heads follow each other only in nhd, its rows in
/// both orders.
__global__ void __launch_bounds__(32 * kWarps) copy_blocks_kernel(const __grid_constant__ KvMoveParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const MovedTensor k = moved_k(p), v = moved_v(p);
  const bool has_v = (p.features & kVIsK) == 0;
  const int64_t rows = int64_t{p.block_size} * p.num_heads_kv;
  const int64_t items = p.num_pairs * rows;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items;
       i += int64_t{gridDim.x} * kWarps) {
    const int64_t src = p.block_pairs[i / rows * 2], dst = p.block_pairs[i / rows * 2 + 1];
    // The host cannot read pairs before the launch, so a block outside the pool cannot be reported as an error.
    // Nothing may be accessed through it either.
    if (src < 0 || src >= p.num_blocks_src || dst < 0 || dst >= p.num_blocks_dst) continue;
    const int64_t in_block = i % rows;
    const bool hnd = (p.features & kHnd) != 0;
    const int64_t row = hnd ? in_block % p.block_size : in_block / p.num_heads_kv;
    const int64_t head = hnd ? in_block / p.block_size : in_block % p.num_heads_kv;
    move_row(k, k.from(src, row, head), k.to(dst, row, head), lane);
    if (has_v) move_row(v, v.from(src, row, head), v.to(dst, row, head), lane);
  }
}

/// One warp per (row, head) of the packed tensor.
__global__ void __launch_bounds__(32 * kWarps) gather_kernel(const __grid_constant__ KvMoveParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const MovedTensor k = moved_k(p), v = moved_v(p);
  const bool has_v = (p.features & kVIsK) == 0;
  const int64_t first = p.cu_seqlens[0];
  const int64_t items = (p.cu_seqlens[p.batch] - first) * p.num_heads_kv;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items;
       i += int64_t{gridDim.x} * kWarps) {
    const int64_t row = first + i / p.num_heads_kv;
    const int64_t head = i % p.num_heads_kv;
    const GatheredRow from = gathered_row(p, row);
    if (from.block < 0 || from.block >= p.num_blocks_src) continue;  // outside the contract, as above
    move_row(k, k.from(from.block, from.row, head), k.to(0, row, head), lane);
    if (has_v) move_row(v, v.from(from.block, from.row, head), v.to(0, row, head), lane);
  }
}

}  // namespace

KernelStatus launch_kv_move(const KvMoveParams& p, const LaunchContext& context, KernelMessage* message) {
  const bool gather = (p.features & kGather) != 0;
  const int64_t rows = gather ? (p.batch > 0 ? p.total_k : 0) : p.num_pairs * p.block_size;
  const int64_t items = rows * p.num_heads_kv;
  if (items == 0) return KernelStatus::kOk;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((items + kWarps - 1) / kWarps, kMaxGrid));
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if (gather) {
    gather_kernel<<<grid, 32 * kWarps, 0, stream>>>(p);
  } else {
    copy_blocks_kernel<<<grid, 32 * kWarps, 0, stream>>>(p);
  }
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
