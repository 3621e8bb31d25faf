// Descales of int8 keys, one per row: they multiply the products q.k key by key.
#pragma once

#include <cstdint>

#include "kernels/common/descale.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// Writes the descales of `n` keys from `first_key` on (sequence `b`, KV head `head`), then zeros up to a
/// multiple of kPanel.
inline void load_key_descales(const AttentionParams& p, int32_t b, int32_t head, int32_t first_key, int n,
                              float* out) {
  for (int j = 0; j < n; ++j) out[j] = k_row_descale(p, b, first_key + j, head);
  for (int j = n; j < round_up(n, kPanel); ++j) out[j] = 0.0f;
}

/// s[begin, end) *= descales; begin and end are multiples of kLanes.
ATTNBENCH_INLINE void multiply_by_descales(const float* descales, float* s, int begin, int end) {
  for (int j = begin; j < end; j += kLanes) store(s + j, load(s + j) * load(descales + j));
}

}  // namespace attnbench::cpu
