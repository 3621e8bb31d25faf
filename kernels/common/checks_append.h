// Argument checks of the op kv_append, as checks.h has them for the others.
#pragma once

#include <cstdint>

#include "kernels/common/checks.h"

namespace attnbench {

/// Checks what kOneRow requires of the shapes and types of a kv_append.
inline KernelStatus check_one_row(const Kernel& kernel, const KvAppendParams& p, KernelMessage* message) {
  const bool apart = p.k_stride_block != p.v_stride_block || p.k_stride_token != p.v_stride_token ||
                     p.k_stride_head != p.v_stride_head || p.dtype_k != p.dtype_v;
  constexpr uint64_t kOther = kInt8K | kInt8V | kKTokenScales | kVTokenScales | kVChannelScales;
  if (!(p.features & kOneRow) || (!apart && !(p.features & kOther))) return KernelStatus::kOk;
  return refuse(
      message, KernelStatus::kBadArgument,
      "%s: K and V with equal strides and types, not int8, and one given scale required of one row, "
      "given %s and %s",
      kernel.name, dtype_name(p.dtype_k), dtype_name(p.dtype_v));
}

/// Checks what kQueryOut and kPositions64 require of the shapes and types of a kv_append.
inline KernelStatus check_query_args(const Kernel& kernel, const KvAppendParams& p, KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if ((p.features & kPositions64) && !(p.features & kRotary)) {
    return bad("%s: rotary required for positions of 64 bits, given none");
  }
  if (!(p.features & kQueryOut)) return KernelStatus::kOk;
  if (p.num_heads_q < 1 || p.num_heads_q % p.num_heads_kv != 0) {
    return bad("%s: num_heads_q a positive multiple of num_heads_kv %d required, given %d", p.num_heads_kv,
               p.num_heads_q);
  }
  if (p.dtype_query_out != p.dtype_in && p.dtype_query_out != DType::kE4m3) {
    return bad("%s: query_out in %s or e4m3 required, given %s", dtype_name(p.dtype_in),
               dtype_name(p.dtype_query_out));
  }
  return KernelStatus::kOk;
}

/// Checks the shapes and types of a kv_append.
inline KernelStatus check_kv_append_args(const Kernel& kernel, const KvAppendParams& p,
                                         KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.num_tokens < 0) {
    return bad("%s: num_tokens >= 0 required, given %lld", static_cast<long long>(p.num_tokens));
  }
  if (p.num_heads_kv < 1) return bad("%s: num_heads_kv >= 1 required, given %d", p.num_heads_kv);
  if (p.head_dim < 1 || p.head_dim > 256) return bad("%s: head_dim 1..256 required, given %d", p.head_dim);
  if (p.head_dim_v < 1 || p.head_dim_v > kMaxHeadDimV) {
    return bad("%s: head_dim_v 1..%d required, given %d", kMaxHeadDimV, p.head_dim_v);
  }
  if (((p.features & kHeadDimV) != 0) != (p.head_dim_v != p.head_dim)) {
    return bad("%s: head_dim_v equal to head_dim %d required %s head_dim_v, given %d", p.head_dim,
               p.features & kHeadDimV ? "not with feature" : "without feature", p.head_dim_v);
  }
  if (p.block_size < 1) return bad("%s: block_size >= 1 required, given %d", p.block_size);
  if (p.num_blocks < 0) return bad("%s: num_blocks >= 0 required, given %d", p.num_blocks);
  if (!is_float_dtype(p.dtype_in)) {
    return bad("%s: dtype_in bf16, fp16 or fp32 required, given %s", dtype_name(p.dtype_in));
  }
  if (((p.features & (kE4m3Kv | kE5m2Kv)) && (p.features & (kInt8K | kInt8V))) ||
      ((p.features & kE4m3Kv) && (p.features & kE5m2Kv))) {
    return bad("%s: a cache in one of e4m3, e5m2 and int8 required, given two");
  }
  const auto cache_type = [&](uint64_t int8) {
    return p.features & kE4m3Kv   ? DType::kE4m3
           : p.features & kE5m2Kv ? DType::kE5m2
           : p.features & int8    ? DType::kInt8
                                  : p.dtype_in;
  };
  if (p.dtype_k != cache_type(kInt8K) || p.dtype_v != cache_type(kInt8V)) {
    return bad("%s: caches in %s and %s required by its features, given %s and %s",
               dtype_name(cache_type(kInt8K)), dtype_name(cache_type(kInt8V)), dtype_name(p.dtype_k),
               dtype_name(p.dtype_v));
  }
  if (((p.features & kKTokenScales) && p.dtype_k == p.dtype_in) ||
      ((p.features & kVTokenScales) && p.dtype_v == p.dtype_in)) {
    return bad("%s: a quantised cache required for scales per token, given %s and %s", dtype_name(p.dtype_k),
               dtype_name(p.dtype_v));
  }
  if ((p.features & kVChannelScales) && (!is_fp8(p.dtype_v) || (p.features & kVTokenScales))) {
    return bad("%s: given scales of V in e4m3 or e5m2 required for scales per channel, given %s",
               dtype_name(p.dtype_v));
  }
  if (const KernelStatus s = check_one_row(kernel, p, message); s != KernelStatus::kOk) return s;
  if (const KernelStatus s = check_query_args(kernel, p, message); s != KernelStatus::kOk) return s;
  if (p.features & kRotary) return check_rotary_args(kernel, p.rotary, p.head_dim, message);
  return KernelStatus::kOk;
}

/// Checks the pointers of a kv_append. Its shapes must have been checked.
inline KernelStatus check_kv_append_pointers(const Kernel& kernel, const KvAppendParams& p,
                                             KernelMessage* message) {
  const auto bad = [&](const char* format) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name);
  };
  if (p.num_tokens == 0) return KernelStatus::kOk;
  if (p.key == nullptr || p.value == nullptr || p.slot_mapping == nullptr) {
    return bad("%s: key, value and slot_mapping required, given null");
  }
  if (p.num_blocks > 0 && (p.k_cache == nullptr || p.v_cache == nullptr)) {
    return bad("%s: k_cache and v_cache required, given null");
  }
  const auto* behind_v =
      static_cast<const char*>(p.v_cache) + p.head_dim_v * static_cast<int64_t>(dtype_size(p.dtype_v));
  if (p.num_blocks > 0 && (p.features & kOneRow) && p.k_cache != behind_v) {
    return bad("%s: k_cache head_dim_v elements behind v_cache required of one row, given another");
  }
  if ((p.features & kRotary) &&
      (p.rotary.cos == nullptr || p.rotary.sin == nullptr ||
       (p.features & kPositions64 ? p.positions64 == nullptr : p.positions == nullptr))) {
    return bad("%s: cos, sin and positions required for rotary, given null");
  }
  if ((p.features & kQueryOut) && (p.query == nullptr || p.query_out == nullptr ||
                                   (p.dtype_query_out != p.dtype_in && p.query_scale == nullptr))) {
    return bad("%s: query, query_out and, in e4m3, query_scale required for returned queries, given null");
  }
  const auto has_scales = [&](const ScaleParams& s, DType cache, uint64_t computed) {
    return cache == p.dtype_in || (p.features & computed ? s.computed != nullptr : s.given != nullptr);
  };
  if (!has_scales(p.k_scale, p.dtype_k, kKTokenScales) || !has_scales(p.v_scale, p.dtype_v, kVTokenScales)) {
    return bad("%s: scales of a quantised cache required, given null");
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench
