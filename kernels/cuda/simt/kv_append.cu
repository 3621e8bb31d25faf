// kv_append: new rows of K and V to their slots of the cache. A copy, bit for bit.
#include <algorithm>
#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kWarps = 4;  ///< per CTA, each with a row of its own
constexpr int kMaxGrid = 1 << 16;

/// `count` words of T by one warp.
template <class T>
__device__ void copy_words(char* dst, const char* src, int count, int lane) {
  for (int i = lane; i < count; i += 32) reinterpret_cast<T*>(dst)[i] = reinterpret_cast<const T*>(src)[i];
}

/// `bytes` bytes by one warp, in the widest words that both places and the length allow.
__device__ void copy_row(char* dst, const char* src, int bytes, int lane) {
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src) | static_cast<uintptr_t>(bytes);
  if (bits % 16 == 0) {
    copy_words<uint4>(dst, src, bytes / 16, lane);
  } else if (bits % 4 == 0) {
    copy_words<uint32_t>(dst, src, bytes / 4, lane);
  } else if (bits % 2 == 0) {
    copy_words<uint16_t>(dst, src, bytes / 2, lane);
  } else {
    copy_words<uint8_t>(dst, src, bytes, lane);
  }
}

/// One warp per (token, KV head), striding over the grid.
__global__ void __launch_bounds__(32 * kWarps) kv_append_kernel(const __grid_constant__ KvAppendParams p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t size = static_cast<int64_t>(dtype_size(p.dtype_in));
  const int row_bytes = static_cast<int>(p.head_dim * size);
  const int64_t capacity = int64_t{p.num_blocks} * p.block_size;
  const int64_t items = p.num_tokens * p.num_heads_kv;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items; i += stride) {
    const int64_t token = i / p.num_heads_kv;
    const int64_t head = i % p.num_heads_kv;
    const int64_t slot = p.slot_mapping[token];
    // -1 skips by contract. The host cannot read the slots before the launch, so one outside the cache is not
    // an error that can be reported; it must not be written through either.
    if (slot < 0 || slot >= capacity) continue;
    copy_row(static_cast<char*>(p.k_cache) + size * (k_slot_offset(p, slot) + head * p.k_stride_head),
             static_cast<const char*>(p.key) + size * (token * p.key_stride_token + head * p.key_stride_head),
             row_bytes, lane);
    copy_row(static_cast<char*>(p.v_cache) + size * (v_slot_offset(p, slot) + head * p.v_stride_head),
             static_cast<const char*>(p.value) +
                 size * (token * p.value_stride_token + head * p.value_stride_head),
             row_bytes, lane);
  }
}

}  // namespace

KernelStatus launch_kv_append(const KvAppendParams& p, const LaunchContext& context, KernelMessage* message) {
  const int64_t items = p.num_tokens * p.num_heads_kv;
  if (items == 0) return KernelStatus::kOk;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((items + kWarps - 1) / kWarps, kMaxGrid));
  kv_append_kernel<<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(context.stream)>>>(p);
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
