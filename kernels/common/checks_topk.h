// Argument checks of launches with lists of keys (kTopkIndices) or a second query (kQv).
#pragma once

#include <cstdint>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Checks the types of a launch with kQv. check_attention_dtypes must have passed.
inline KernelStatus check_qv(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  const bool plain = p.dtype_q == DType::kBf16 || p.dtype_q == DType::kFp16 || p.dtype_q == DType::kFp32;
  if (!(p.features & kQv) || (p.dtype_k == p.dtype_q && p.dtype_v == p.dtype_q && plain))
    return KernelStatus::kOk;
  return refuse(message, KernelStatus::kBadArgument,
                "%s: q, K and V in bf16, fp16 or fp32 required for qv, given %s, %s and %s", kernel.name,
                dtype_name(p.dtype_q), dtype_name(p.dtype_k), dtype_name(p.dtype_v));
}

/// Checks the lists of a launch with kTopkIndices.
inline KernelStatus check_topk_args(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  const bool lists = (p.features & kTopkIndices) != 0;
  if (p.topk < 0 || lists != (p.topk > 0)) {
    return refuse(message, KernelStatus::kBadArgument,
                  "%s: topk over 0 with topk_indices, 0 without, required, given %d", kernel.name, p.topk);
  }
  if (lists && (p.features & kContiguousKv)) {
    return refuse(message, KernelStatus::kBadArgument, "%s: packed or paged KV required of topk_indices",
                  kernel.name);
  }
  return KernelStatus::kOk;
}

/// For kernels that attend by lists: refuses what counts keys by their positions, which an entry does not show, and
/// descales by row.
inline KernelStatus check_topk_limits(const Kernel& kernel, const AttentionParams& p,
                                      KernelMessage* message) {
  constexpr uint64_t kByPosition = kAlibi | kDropout | kProbs | kAppend | kCustomMask | kInt8K |
                                   kKTokenScales | kVTokenScales | kQv | kRotaryCached;
  if (!(p.features & kTopkIndices) || !(p.features & kByPosition)) return KernelStatus::kOk;
  for (const auto& f : kFeatureNames) {
    if (p.features & kByPosition & f.bit)
      return refuse(message, KernelStatus::kUnsupported, "%s: no %s required with topk_indices", kernel.name,
                    f.name);
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench
