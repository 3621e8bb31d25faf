// What launches must have for sm90_prefill, and what follows from their types.
#pragma once

#include "kernels/contract/kernel.h"
#include "kernels/cuda/common/tensor_map.h"

namespace attnbench::sm90_prefill {

/// Bytes of K and V of one token and KV head.
inline int64_t token_bytes(const AttentionParams& p) {
  return static_cast<int64_t>(p.head_dim * dtype_size(p.dtype_k) + p.head_dim_v * dtype_size(p.dtype_v));
}

/// Whether rows must be copied one by one, because pages are no whole groups of 8 rows.
inline bool has_row_pages(const AttentionParams& p) {
  return (p.features & kPagedKv) != 0 && p.block_size % hopper::kGroupRows != 0;
}

/// Checks what K in int8 requires, beyond the contract.
inline KernelStatus check_int8(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  if ((p.features & kInt8K) == 0) return KernelStatus::kOk;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, kernel.name, args...);
  };
  if ((p.features & kInt8Q) == 0) {
    return unsupported("%s: q in int8 required beside K in int8, given %s", dtype_name(p.dtype_q));
  }
  if (p.head_dim != 128 || p.head_dim_v != 128) {
    return unsupported("%s: head_dim 128 required for K in int8, given %d with head_dim_v %d", p.head_dim,
                       p.head_dim_v);
  }
  if (p.softcap > 0.0f) {
    return unsupported("%s: softcap 0 required for K in int8, given %g", static_cast<double>(p.softcap));
  }
  if (has_row_pages(p)) {
    return unsupported("%s: block_size a multiple of 8 required for K in int8, given %d", p.block_size);
  }
  return KernelStatus::kOk;
}

/// Checks the rows of a contiguous cache, whose numbers count rows of K, of V and of the scales of K alike.
inline KernelStatus check_cache_rows(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  if ((p.features & kContiguousKv) == 0) return KernelStatus::kOk;
  const auto of_k = static_cast<long long>(p.k_stride_block / p.k_stride_token);
  const auto of_v = static_cast<long long>(p.v_stride_block / p.v_stride_token);
  if (of_k != of_v) {
    return refuse(message, KernelStatus::kUnsupported,
                  "%s: rows of the cache as long in K as in V required, given %lld and %lld tokens",
                  kernel.name, of_k, of_v);
  }
  if ((p.features & kInt8K) && p.k_descale_stride_block != of_k * p.k_descale_stride_outer) {
    return refuse(message, KernelStatus::kUnsupported,
                  "%s: k_descale_stride_block of %lld tokens, as in K, required, given %lld", kernel.name,
                  of_k, static_cast<long long>(p.k_descale_stride_block));
  }
  return KernelStatus::kOk;
}

/// Whether an instance with whole tiles runs `op` and `kernel`, one that prefills so, takes what it asks. Refusals name
/// `kernel`.
KernelStatus check_supported(const Kernel& kernel, const OpParams& op, const LaunchContext& context,
                             KernelMessage* message);

}  // namespace attnbench::sm90_prefill
