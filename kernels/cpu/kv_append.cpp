// The cpu kv_append kernel: tokens go to their slots bit for bit.
#include <algorithm>
#include <cstring>

#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::cpu {
namespace {

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const KernelStatus s = check_features(kKvAppend, *params, message); s != KernelStatus::kOk) return s;
  return check_kv_append_args(kKvAppend, params->kv_append, message);
}

/// Nothing is computed: the type of the copy is that of the cache.
Numerics numerics(const OpParams* params) {
  return {params->kv_append.dtype_k, params->kv_append.dtype_k, 0.0};
}

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

/// Copies one token's rows of all heads; strides and offsets in elements of `size` bytes.
void copy_token(const KvAppendParams& p, const void* from, int64_t from_offset, int64_t from_stride_head,
                void* to, int64_t to_offset, int64_t to_stride_head, std::size_t size) {
  const int64_t bytes = static_cast<int64_t>(size);
  const char* source = static_cast<const char*>(from) + from_offset * bytes;
  char* target = static_cast<char*>(to) + to_offset * bytes;
  for (int32_t h = 0; h < p.num_heads_kv; ++h) {
    std::memcpy(target + h * to_stride_head * bytes, source + h * from_stride_head * bytes,
                static_cast<std::size_t>(p.head_dim) * size);
  }
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const KvAppendParams& p = params->kv_append;
  if (const KernelStatus s = check_kv_append_pointers(kKvAppend, p, message); s != KernelStatus::kOk)
    return s;
  // All slots are looked at before the first write: a bad call leaves the cache as it was.
  const int64_t slots = int64_t{p.num_blocks} * p.block_size;
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot >= -1 && slot < slots) continue;
    return refuse(message, KernelStatus::kBadArgument,
                  "%s: slot_mapping of token %lld: -1 or 0..%lld required, given %lld", kKvAppend.name,
                  static_cast<long long>(t), static_cast<long long>(slots - 1), static_cast<long long>(slot));
  }
  const std::size_t size = dtype_size(p.dtype_in);
  const int threads =
      static_cast<int>(std::clamp<int64_t>(context->num_threads, 1, std::max<int64_t>(1, p.num_tokens)));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot < 0) continue;
    copy_token(p, p.key, t * p.key_stride_token, p.key_stride_head, p.k_cache, k_slot_offset(p, slot),
               p.k_stride_head, size);
    copy_token(p, p.value, t * p.value_stride_token, p.value_stride_head, p.v_cache, v_slot_offset(p, slot),
               p.v_stride_head, size);
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kKvAppend = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cpu",
    .summary = "copy of keys and values to their slots, bit for bit",
    .shapes = "head_dim 1..256, any block_size",
    .op = Op::kKvAppend,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPagedKv | kHnd | kBf16 | kFp16 | kFp32 | kE4m3Kv | kInt8K | kInt8V,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
