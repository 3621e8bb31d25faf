// Argument checks of launches whose keys and values have scales for blocks of channels (kBlockScales).
#pragma once

#include <cstdint>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Channels that share a scale, and the type of the scale.
struct BlockScaleForm {
  int32_t channels;
  DType type;
};
constexpr BlockScaleForm block_scale_form(uint64_t features) {
  return features & kKTail ? BlockScaleForm{128, DType::kFp32} : BlockScaleForm{16, DType::kE4m3};
}

/// Checks the sizes and types of a launch with kE2m1Kv, kBlockScales or kKTail. Its types and its head_dim and head_dim_v
/// must have been checked.
inline KernelStatus check_block_scales(const Kernel& kernel, const AttentionParams& p,
                                       KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  const bool e2m1 = (p.features & kE2m1Kv) != 0, tail = (p.features & kKTail) != 0;
  if (!(p.features & kBlockScales)) {
    if (e2m1 || tail) return bad("%s: block_scales required for e2m1_kv and k_tail, given none");
    return KernelStatus::kOk;
  }
  if (e2m1 == tail) return bad("%s: one of e2m1_kv and k_tail required with block_scales");
  if (p.features & kAppend) return bad("%s: no append required with block_scales");
  if (tail && (p.features & (kE4m3Kv | kVIsK)) != (kE4m3Kv | kVIsK)) {
    return bad("%s: e4m3_kv and v_is_k_view required with k_tail");
  }
  const BlockScaleForm form = block_scale_form(p.features);
  if (p.scale_block != form.channels || p.dtype_block_scale != form.type) {
    return bad("%s: scales in %s of %d channels required, given %s of %d", dtype_name(form.type),
               form.channels, dtype_name(p.dtype_block_scale), p.scale_block);
  }
  if (p.head_dim_v % form.channels != 0 ||
      (tail ? p.head_dim <= p.head_dim_v : p.head_dim % form.channels != 0)) {
    return bad("%s: head_dim_v a multiple of %d and head_dim %s required of block_scales, given %d and %d",
               form.channels, tail ? "over it" : "too", p.head_dim_v, p.head_dim);
  }
  return KernelStatus::kOk;
}

/// Checks the pointers of such a launch.
inline KernelStatus check_block_scale_pointers(const Kernel& kernel, const AttentionParams& p,
                                               KernelMessage* message) {
  const auto bad = [&](const char* format) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name);
  };
  if (!(p.features & kBlockScales) || p.batch == 0) return KernelStatus::kOk;
  if (p.k_block_scale == nullptr || p.v_block_scale == nullptr) {
    return bad("%s: k_block_scale and v_block_scale required for block_scales, given null");
  }
  if ((p.features & kVIsK) && p.v_block_scale != p.k_block_scale) {
    return bad("%s: v_block_scale equal to k_block_scale required of a view of K, given another");
  }
  if ((p.features & kKTail) && p.k_tail == nullptr) return bad("%s: k_tail required for k_tail, given null");
  return KernelStatus::kOk;
}

}  // namespace attnbench
