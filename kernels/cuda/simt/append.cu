// Writes new keys and values into the cache before a launch attends (kAppend). A kernel of its own, enqueued
// first.
#include <algorithm>
#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/common/descale.h"
#include "kernels/common/rotary.h"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kWarps = 4;  ///< warps of a CTA; each takes a row of its own
constexpr int kMaxGrid = 1 << 16;

/// The sequence of new token `token`: the last one that begins at or before it.
__device__ int sequence_of(const AttentionParams& p, int64_t token) {
  int lo = 0;
  int hi = p.batch;
  while (hi - lo > 1) {
    const int mid = lo + (hi - lo) / 2;
    (p.cu_seqlens_new[mid] <= token ? lo : hi) = mid;
  }
  return lo;
}

/// Whether row `row` of sequence `b` lies in the cache. The host cannot read lengths and tables before the
/// launch, so a row outside cannot be reported as an error. It must not be written either.
__device__ bool in_cache(const AttentionParams& p, int b, int row) {
  const int padded = padded_row(p, b, row);
  if (row < 0 || padded >= kv_capacity(p)) return false;
  const int block = p.features & kPagedKv ? p.block_table[table_entry(p, b, padded)] : cache_row(p, b);
  return block >= 0 && block < p.num_blocks;
}

/// Copies an element of `bytes` bytes.
__device__ void copy_element(std::size_t bytes, void* to, int64_t to_at, const void* from, int64_t from_at) {
  if (bytes == 4) {
    static_cast<uint32_t*>(to)[to_at] = static_cast<const uint32_t*>(from)[from_at];
  } else if (bytes == 2) {
    static_cast<uint16_t*>(to)[to_at] = static_cast<const uint16_t*>(from)[from_at];
  } else {
    static_cast<uint8_t*>(to)[to_at] = static_cast<const uint8_t*>(from)[from_at];
  }
}

/// One warp per (new token, KV head), striding over the grid.
__global__ void __launch_bounds__(32 * kWarps) append_kernel(const __grid_constant__ AttentionParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t begin = p.cu_seqlens_new[0];
  const int64_t items = (p.cu_seqlens_new[p.batch] - begin) * p.num_heads_kv;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  const bool rotary = p.features & kRotary;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items; i += stride) {
    const int64_t token = begin + i / p.num_heads_kv;
    const int64_t head = i % p.num_heads_kv;
    const int b = sequence_of(p, token);
    const int row = static_cast<int>(seq_range(p, b).k_len - new_len(p, b) + token - p.cu_seqlens_new[b]);
    if (!in_cache(p, b, row) || (rotary && row >= p.rotary.positions)) continue;
    const int64_t k_from = token * p.k_new_stride_token + head * p.k_new_stride_head;
    const int64_t v_from = token * p.v_new_stride_token + head * p.v_new_stride_head;
    const int64_t k_to = k_row_offset(p, b, row) + head * p.k_stride_head;
    const int64_t v_to = v_row_offset(p, b, row) + head * p.v_stride_head;
    const DType k_type = k_new_type(p), v_type = v_new_type(p);
    const bool k_quantised = k_type != p.dtype_k, v_quantised = v_type != p.dtype_v;
    const auto load = [&](int32_t c) { return load_float(k_type, p.k_new, k_from + c); };
    const auto kv_head = static_cast<int32_t>(head);
    for (int c = lane; c < p.head_dim; c += 32) {
      if (rotary || k_quantised) {
        float x = rotary ? rotated(p.rotary, row, c, load) : load(c);
        if (k_quantised) x /= k_descale(p, b, kv_head) * row_descale(p, false, b, row, kv_head);
        store_float(p.dtype_k, p.k_cache, k_to + c, x);
      } else {
        copy_element(dtype_size(k_type), p.k_cache, k_to + c, p.k_new, k_from + c);
      }
      if (v_quantised) {
        const float x = load_float(v_type, p.v_new, v_from + c);
        const float scale = v_descale(p, b, kv_head, c) * row_descale(p, true, b, row, kv_head);
        store_float(p.dtype_v, p.v_cache, v_to + c, x / scale);
      } else {
        copy_element(dtype_size(v_type), p.v_cache, v_to + c, p.v_new, v_from + c);
      }
    }
  }
}

}  // namespace

KernelStatus launch_append(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  const int64_t items = p.total_new * p.num_heads_kv;
  if (items == 0) return KernelStatus::kOk;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((items + kWarps - 1) / kWarps, kMaxGrid));
  append_kernel<<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(context.stream)>>>(p);
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
