// The plan of a launch of attention.
#pragma once

#include "harness/tensors/plan.h"

namespace attnbench::ops::attention {

void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan);

}  // namespace attnbench::ops::attention
