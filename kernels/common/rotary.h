// Rotary position embedding, a channel at a time.
#pragma once

#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// Channel `c` of a row that stands at `position`, 0 <= position < r.positions; `load(c)` gives its channels
/// before the rotation.
template <class Load>
ATTNBENCH_HD inline float rotated(const RotaryParams& r, int64_t position, int32_t c, Load load) {
  const float x = load(c);
  if (c >= r.dim) return x;
  const int32_t half = r.dim / 2;
  const bool second = r.interleaved ? c % 2 == 1 : c >= half;
  const int32_t column = r.interleaved ? c / 2 : second ? c - half : c;
  const int32_t distance = r.interleaved ? 1 : half;
  const float other = load(second ? c - distance : c + distance);
  const float cos = r.cos[position * half + column];
  const float sin = r.sin[position * half + column];
  return second ? other * sin + x * cos : x * cos - other * sin;
}

}  // namespace attnbench
