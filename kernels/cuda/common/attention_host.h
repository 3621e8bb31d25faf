// Host code that the Hopper attention kernels share: checks of what they support, and their tensor maps.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "kernels/common/checks.h"
#include "kernels/cuda/common/gpu_rates.h"
#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/common/tensor_map.h"

namespace attnbench::hopper {

/// The rates of the GPU of a launch. Clocks are queried once for each GPU, because the driver takes long to
/// answer; a query that fails gives those of an H100.
inline GpuRates rates_of(const LaunchContext& context) {
  struct Clocks {
    std::atomic<int> core_khz{0}, memory_khz{0}, bus_bits{0};
  };
  static std::array<Clocks, 64> known;
  const int ordinal = context.device_ordinal;
  const auto query = [&](std::atomic<int>& kept, cudaDeviceAttr which, int of_h100) {
    int value = kept.load(std::memory_order_relaxed);
    if (value > 0) return value;
    if (cudaDeviceGetAttribute(&value, which, ordinal) != cudaSuccess || value <= 0) value = of_h100;
    kept.store(value, std::memory_order_relaxed);
    return value;
  };
  Clocks& c = known[static_cast<std::size_t>(ordinal) % known.size()];
  const int core = query(c.core_khz, cudaDevAttrClockRate, 1'980'000);
  const int memory = query(c.memory_khz, cudaDevAttrMemoryClockRate, 2'619'000);
  return rates_of(context.multiprocessors, core, memory,
                  query(c.bus_bits, cudaDevAttrGlobalMemoryBusWidth, 5120));
}

/// Checks the GPU, types and lengths that all of these kernels require.
inline KernelStatus check_basics(const Kernel& kernel, const AttentionParams& p, const LaunchContext& context,
                                 KernelMessage* message) {
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, kernel.name, args...);
  };
  if (context.compute_capability != 90) {
    return unsupported("%s: compute capability 90 required, given %d", context.compute_capability);
  }
  const bool base_is_bf16 = p.features & kBf16;
  const DType base = base_is_bf16 ? DType::kBf16 : DType::kFp16;  // that of q, or beside q in 8 bits
  if (p.dtype_out != base) {
    return unsupported("%s: dtype_out %s required, given %s", dtype_name(base), dtype_name(p.dtype_out));
  }
  if (!(p.softmax_scale > 0.0f)) {
    return unsupported("%s: softmax_scale > 0 required, given %g", static_cast<double>(p.softmax_scale));
  }
  const int32_t longest = std::max(p.max_seqlen_q, p.max_seqlen_k);
  if (longest >= kFar) return unsupported("%s: lengths below %d required, given %d", kFar, longest);
  return KernelStatus::kOk;
}

/// The same, and the head_dim of those that have keys and values of one width.
inline KernelStatus check_shapes(const Kernel& kernel, const AttentionParams& p, const LaunchContext& context,
                                 KernelMessage* message) {
  if (const KernelStatus s = check_basics(kernel, p, context, message); s != KernelStatus::kOk) return s;
  if (p.head_dim != 64 && p.head_dim != 128 && p.head_dim != 256) {
    return refuse(message, KernelStatus::kUnsupported, "%s: head_dim 64, 128 or 256 required, given %d",
                  kernel.name, p.head_dim);
  }
  return KernelStatus::kOk;
}

/// Checks that the copy engine and whole-word stores can follow the strides. Here and below, `chunk_bytes` is
/// 128, or 64 for kernels whose tiles have chunks of half the channels.
inline KernelStatus check_strides(const Kernel& kernel, const AttentionParams& p, KernelMessage* message,
                                  int chunk_bytes = kChunkBytes) {
  const auto elements = [](int64_t bytes, DType dtype) {
    return bytes / static_cast<int64_t>(dtype_size(dtype));
  };
  const int64_t q = elements(16, p.dtype_q), k = elements(16, p.dtype_k), v = elements(16, p.dtype_v);
  const Stride strides[] = {
      {"q_stride_token", p.q_stride_token, q},
      {"q_stride_head", p.q_stride_head, q},
      {"k_stride_token", p.k_stride_token, k},
      {"k_stride_head", p.k_stride_head, elements(chunk_bytes, p.dtype_k)},
      {"v_stride_token", p.v_stride_token, v},
      {"v_stride_head", p.v_stride_head, elements(chunk_bytes, p.dtype_v)},
      {"out_stride_token", p.out_stride_token, 8},
      {"out_stride_head", p.out_stride_head, 8},
  };
  if (const KernelStatus s = check_strides(kernel, strides, message); s != KernelStatus::kOk) return s;
  if (p.features & kPackedKv) return KernelStatus::kOk;
  const Stride blocks[] = {{"k_stride_block", p.k_stride_block, p.k_stride_token},
                           {"v_stride_block", p.v_stride_block, p.v_stride_token}};
  for (const Stride& s : blocks) {
    if (s.value % s.multiple != 0) return check_strides(kernel, blocks, message);
    const int64_t rows = s.value / s.multiple * p.num_blocks;
    if (rows > INT32_MAX - kFar) {
      return refuse(message, KernelStatus::kUnsupported,
                    "%s: at most %d rows in the pool required, given %lld", kernel.name, INT32_MAX - kFar,
                    static_cast<long long>(rows));
    }
  }
  return KernelStatus::kOk;
}

/// The KvRows of K or of V, from its type and its strides in elements.
inline KvRows kv_rows_of(const AttentionParams& p, DType dtype, int64_t stride_block, int64_t stride_token,
                         int64_t stride_head, uint32_t chunk_bytes = kChunkBytes) {
  const int64_t chunk_channels = chunk_bytes / static_cast<int64_t>(dtype_size(dtype));
  return {p.features & kPackedKv ? 0 : static_cast<int32_t>(stride_block / stride_token),
          static_cast<int32_t>(stride_head / chunk_channels)};
}

/// Chunks in one head's row of `head_dim` channels of K or V, which has type `dtype`.
inline uint32_t head_chunks_of(DType dtype, int head_dim, uint32_t chunk_bytes = kChunkBytes) {
  return static_cast<uint32_t>(head_dim * dtype_size(dtype) / chunk_bytes);
}

/// Number of chunks from the first head's first chunk to the last head's last one.
inline uint64_t row_chunks_of(const AttentionParams& p, DType dtype, const KvRows& rows, int head_dim,
                              uint32_t chunk_bytes = kChunkBytes) {
  return static_cast<uint64_t>(p.num_heads_kv - 1) * rows.head_chunks +
         head_chunks_of(dtype, head_dim, chunk_bytes);
}

/// Encodes the map of q, with dimensions (64 channels, head, token, chunk); a chunk in 8 bits has 128 channels.
/// A box is one chunk of `tokens` tokens of `heads` heads, heads within tokens. A row of less than a chunk ends in
/// zeros. Returns false where the driver refuses.
inline bool encode_q_map(CUtensorMap* map, const AttentionParams& p, int heads, int tokens,
                         uint32_t chunk_bytes = kChunkBytes) {
  const uint64_t element = dtype_size(p.dtype_q);
  const uint32_t channels = chunk_bytes / kElementBytes;
  const uint64_t row_bytes = p.head_dim * element;
  const uint64_t dims[4] = {
      std::min<uint64_t>(channels, row_bytes / kElementBytes), static_cast<uint64_t>(p.num_heads_q),
      static_cast<uint64_t>(std::max<int64_t>(p.total_q, 1)), std::max<uint64_t>(row_bytes / chunk_bytes, 1)};
  const uint64_t strides[3] = {p.q_stride_head * element, p.q_stride_token * element, chunk_bytes};
  const uint32_t box[4] = {channels, static_cast<uint32_t>(heads), static_cast<uint32_t>(tokens), 1};
  // Without query rows the map is not used, but it must have an address and a row.
  return encode_map(map, p.dtype_q, p.q != nullptr ? p.q : p.k, dims, strides, box);
}

}  // namespace attnbench::hopper
