// What a launch of attention costs.
#pragma once

#include "harness/ops/case_ops.h"

namespace attnbench::ops::attention {

void set_cost(const CaseParams& p, DrawSeed seed, CaseCost& c);

}  // namespace attnbench::ops::attention
