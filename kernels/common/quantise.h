// Scales that a kernel computes from the row that they quantise.
#pragma once

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// Scale of an e4m3, e5m2 or int8 row whose largest magnitude is `amax`. Dividing by it takes amax to the type's
/// largest number. Returns 1 if the quotient would be 0.
ATTNBENCH_HD inline float token_scale(DType t, float amax) {
  const float scale = amax / largest_number(t);
  return scale == 0.0f ? 1.0f : scale;
}

}  // namespace attnbench
