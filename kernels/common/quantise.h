// Scales that are computed from what they scale.
#pragma once

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// The scale of a row in e4m3 or int8 whose largest magnitude is `amax`: it takes amax to the type's largest
/// number. 1 where that would be 0.
ATTNBENCH_HD inline float token_scale(DType t, float amax) {
  const float scale = amax / (t == DType::kE4m3 ? 448.0f : 127.0f);
  return scale == 0.0f ? 1.0f : scale;
}

}  // namespace attnbench
