// Descales per row: those of K multiply the products q.k key by key, those of V the weights.
#pragma once

#include <cstdint>

#include "kernels/common/descale.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// Whether rows of K or V, of elements T, have descales of their own. Only 8 bits have.
template <class T>
bool scaled_by_row(const AttentionParams& p, bool is_v) {
  return sizeof(typename T::Storage) == 1 && has_row_descales(p, is_v);
}

/// Writes the descales of `n` rows of K or V from `first_key` on (sequence `b`, KV head `head`), then zeros up to a
/// multiple of kPanel.
inline void load_row_descales(const AttentionParams& p, bool is_v, int32_t b, int32_t head, int32_t first_key,
                              int n, float* out) {
  for (int j = 0; j < n; ++j) out[j] = row_descale(p, is_v, b, first_key + j, head);
  for (int j = n; j < round_up(n, kPanel); ++j) out[j] = 0.0f;
}

/// s[begin, end) *= descales; begin and end are multiples of kLanes.
ATTNBENCH_INLINE void multiply_by_descales(const float* descales, float* s, int begin, int end) {
  for (int j = begin; j < end; j += kLanes) store(s + j, load(s + j) * load(descales + j));
}

}  // namespace attnbench::cpu
