// kv_append: writes new rows of K and V to their cache slots, copied bit for bit, or rotated and quantised. Returns
// queries of the same tokens, treated like keys.
#include <algorithm>
#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/common/quantise.h"
#include "kernels/common/rotary.h"
#include "kernels/cuda/simt/copy_row.cuh"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kWarps = 4;  ///< warps of a CTA; each takes a row of its own
constexpr int kMaxGrid = 1 << 16;

/// One of the two tensors of a launch.
struct Tensor {
  const void* from;
  int64_t from_stride_token;
  int64_t from_stride_head;
  int dim;
  void* cache;
  DType dtype;
  int64_t stride_block;
  int64_t stride_token;
  int64_t stride_head;
  bool rotary;
  bool computed_scales;
};

/// Writes one row with one warp: lane c % 32 handles channel c.
__device__ void append_row(const KvAppendParams& p, const Tensor& t, const ScaleParams& scales, int64_t token,
                           int64_t slot, int head, int lane) {
  const int64_t size_in = static_cast<int64_t>(dtype_size(p.dtype_in));
  const char* source =
      static_cast<const char*>(t.from) + size_in * (token * t.from_stride_token + head * t.from_stride_head);
  const int64_t target = slot_offset(p, slot, t.stride_block, t.stride_token) + head * t.stride_head;
  if (!t.rotary && t.dtype == p.dtype_in) {
    copy_row(static_cast<char*>(t.cache) + size_in * target, source, static_cast<int>(t.dim * size_in), lane);
    return;
  }
  float row[kMaxHeadDimV / 32];
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kMaxHeadDimV / 32; ++i) {
    const int c = lane + 32 * i;
    if (c >= t.dim) break;
    const auto load = [&](int32_t channel) { return load_float(p.dtype_in, source, channel); };
    row[i] = t.rotary ? rotated(p.rotary, token_position(p, token), c, load) : load(c);
    amax = fmaxf(amax, fabsf(row[i]));
  }
  float computed = 1.0f;
  if (t.computed_scales) {
    for (int distance = 16; distance > 0; distance /= 2) {
      amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, distance));
    }
    computed = token_scale(t.dtype, amax);
    if (lane == 0) scales.computed[scale_slot_offset(p, scales, slot, head)] = computed;
  }
#pragma unroll
  for (int i = 0; i < kMaxHeadDimV / 32; ++i) {
    const int c = lane + 32 * i;
    if (c >= t.dim) break;
    const float scale = t.dtype == p.dtype_in ? 1.0f
                        : t.computed_scales   ? computed
                                              : scales.given[given_scale_offset(scales, head, c)];
    store_float(t.dtype, t.cache, target + c, row[i] / scale);
  }
}

/// Writes query `head` of a token to query_out with one warp.
__device__ void return_query(const KvAppendParams& p, int64_t token, int head, int lane) {
  const int64_t size_in = static_cast<int64_t>(dtype_size(p.dtype_in));
  const char* source = static_cast<const char*>(p.query) +
                       size_in * (token * p.query_stride_token + head * p.query_stride_head);
  const int64_t target = token * p.query_out_stride_token + head * p.query_out_stride_head;
  const bool rotary = p.features & kRotary;
  const bool quantises = p.dtype_query_out != p.dtype_in;
  if (!rotary && !quantises) {
    copy_row(static_cast<char*>(p.query_out) + size_in * target, source,
             static_cast<int>(p.head_dim * size_in), lane);
    return;
  }
  const auto load = [&](int32_t channel) { return load_float(p.dtype_in, source, channel); };
  for (int c = lane; c < p.head_dim; c += 32) {
    const float x = rotary ? rotated(p.rotary, token_position(p, token), c, load) : load(c);
    store_float(p.dtype_query_out, p.query_out, target + c, quantises ? x / *p.query_scale : x);
  }
}

/// Heads of a token that a launch has work for: those of K and V, then those of returned queries.
__host__ __device__ int heads_of_token(const KvAppendParams& p) {
  return p.num_heads_kv + (p.features & kQueryOut ? p.num_heads_q : 0);
}

/// One warp per (token, head), striding over the grid.
__global__ void __launch_bounds__(32 * kWarps) kv_append_kernel(const __grid_constant__ KvAppendParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t capacity = int64_t{p.num_blocks} * p.block_size;
  const int heads = heads_of_token(p);
  const int64_t items = p.num_tokens * heads;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  const bool rotary = p.features & kRotary;
  const Tensor k{p.key,
                 p.key_stride_token,
                 p.key_stride_head,
                 p.head_dim,
                 p.k_cache,
                 p.dtype_k,
                 p.k_stride_block,
                 p.k_stride_token,
                 p.k_stride_head,
                 rotary,
                 (p.features & kKTokenScales) != 0};
  const Tensor v{p.value,
                 p.value_stride_token,
                 p.value_stride_head,
                 p.head_dim_v,
                 p.v_cache,
                 p.dtype_v,
                 p.v_stride_block,
                 p.v_stride_token,
                 p.v_stride_head,
                 false,
                 (p.features & kVTokenScales) != 0};
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items; i += stride) {
    const int64_t token = i / heads;
    const int head = static_cast<int>(i % heads);
    const int64_t slot = p.slot_mapping[token];
    // Slot -1 means skip, by contract. The host cannot read slots and positions before the launch, so one
    // outside the cache or the table cannot be reported as an error. Nothing may be accessed through it
    // either.
    if (slot < 0 || slot >= capacity) continue;
    if (rotary && (token_position(p, token) < 0 || token_position(p, token) >= p.rotary.positions)) continue;
    if (head >= p.num_heads_kv) {
      return_query(p, token, head - p.num_heads_kv, lane);
      continue;
    }
    append_row(p, k, p.k_scale, token, slot, head, lane);
    append_row(p, v, p.v_scale, token, slot, head, lane);
  }
}

}  // namespace

KernelStatus launch_kv_append(const KvAppendParams& p, const LaunchContext& context, KernelMessage* message) {
  const int64_t items = p.num_tokens * heads_of_token(p);
  if (items == 0) return KernelStatus::kOk;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((items + kWarps - 1) / kWarps, kMaxGrid));
  kv_append_kernel<<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(context.stream)>>>(p);
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
