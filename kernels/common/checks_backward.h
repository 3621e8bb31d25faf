// Argument checks of attention_backward.
#pragma once

#include <cstdint>

#include "kernels/common/checks.h"

namespace attnbench {

/// Largest head_dim and head_dim_v of attention_backward.
inline constexpr int32_t kMaxBackwardDim = 256;

/// Checks the shapes and types of an attention_backward. Call check_features first.
inline KernelStatus check_backward_args(const Kernel& kernel, const AttentionBackwardParams& p,
                                        KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.batch < 0) return bad("%s: batch >= 0 required, given %d", p.batch);
  if (p.total_q < 0 || p.total_k < 0) {
    return bad("%s: total_q and total_k >= 0 required, given %lld and %lld",
               static_cast<long long>(p.total_q), static_cast<long long>(p.total_k));
  }
  if (p.num_heads_kv < 1) return bad("%s: num_heads_kv >= 1 required, given %d", p.num_heads_kv);
  if (p.num_heads_q < 1 || p.num_heads_q % p.num_heads_kv != 0) {
    return bad("%s: num_heads_q a positive multiple of num_heads_kv %d required, given %d", p.num_heads_kv,
               p.num_heads_q);
  }
  if (!(p.features & kPackedKv)) return bad("%s: packed KV required of attention_backward, given other KV");
  if ((p.features & (kBf16 | kFp16 | kFp32)) != dtype_feature(p.dtype) || !is_float_dtype(p.dtype)) {
    return bad("%s: one of bf16, fp16 and fp32, equal to dtype, required, given bits 0x%llx and %s",
               static_cast<unsigned long long>(p.features & (kBf16 | kFp16 | kFp32)), dtype_name(p.dtype));
  }
  if (p.head_dim < 1 || p.head_dim > kMaxBackwardDim || p.head_dim_v < 1 || p.head_dim_v > kMaxBackwardDim) {
    return bad("%s: head_dim and head_dim_v 1..%d required, given %d and %d", kMaxBackwardDim, p.head_dim,
               p.head_dim_v);
  }
  if (((p.features & kHeadDimV) != 0) != (p.head_dim_v != p.head_dim)) {
    return bad("%s: head_dim_v equal to head_dim %d required %s head_dim_v, given %d", p.head_dim,
               p.features & kHeadDimV ? "not with feature" : "without feature", p.head_dim_v);
  }
  if (const KernelStatus s = check_top_left(kernel, p, message); s != KernelStatus::kOk) return s;
  if (!(p.softcap >= 0.0f)) return bad("%s: softcap >= 0 required, given %g", static_cast<double>(p.softcap));
  const bool dropout = (p.features & kDropout) != 0;
  if (dropout ? !(p.p_dropout > 0.0f && p.p_dropout < 1.0f) : p.p_dropout != 0.0f) {
    return bad("%s: p_dropout over 0 and under 1 with dropout, 0 without, required, given %g",
               static_cast<double>(p.p_dropout));
  }
  return KernelStatus::kOk;
}

/// Checks the pointers of an attention_backward. Its shapes must have been checked.
inline KernelStatus check_backward_pointers(const Kernel& kernel, const AttentionBackwardParams& p,
                                            KernelMessage* message) {
  const auto bad = [&](const char* format) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name);
  };
  if (p.batch > 0 && (p.cu_seqlens_q == nullptr || p.cu_seqlens_k == nullptr)) {
    return bad("%s: cu_seqlens_q and cu_seqlens_k required, given null");
  }
  if (p.batch > 0 && (p.features & kAlibi) && p.alibi_slopes == nullptr) {
    return bad("%s: alibi_slopes required for alibi, given null");
  }
  if ((p.features & kSinks) && (p.sinks == nullptr || p.dsinks == nullptr)) {
    return bad("%s: sinks and dsinks required for sinks, given null");
  }
  if (p.total_q > 0 &&
      (p.q == nullptr || p.out == nullptr || p.lse == nullptr || p.d_out == nullptr || p.dq == nullptr)) {
    return bad("%s: q, out, lse, d_out and dq required, given null");
  }
  if (p.total_k > 0 && (p.k == nullptr || p.v == nullptr || p.dk == nullptr || p.dv == nullptr)) {
    return bad("%s: k, v, dk and dv required, given null");
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench
