// Descales of stored keys and values. Kernels compute with the numbers as stored: the descale of K is part of
// the factor of q.k, the descale of V multiplies a row at its end.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"

namespace attnbench::cpu {

/// What the stored keys of sequence `b`, KV head `head` are to be multiplied by; 1 where KV is not quantised.
inline float k_descale(const AttentionParams& p, int32_t b, int32_t head) {
  if (!(p.features & kE4m3Kv)) return 1.0f;
  return p.k_descale[b * p.k_descale_stride_outer + head * p.k_descale_stride_head];
}

/// Likewise of values.
inline float v_descale(const AttentionParams& p, int32_t b, int32_t head) {
  if (!(p.features & kE4m3Kv)) return 1.0f;
  return p.v_descale[b * p.v_descale_stride_outer + head * p.v_descale_stride_head];
}

}  // namespace attnbench::cpu
