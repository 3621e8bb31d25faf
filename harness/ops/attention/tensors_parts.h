// The parts of kTensorsOps (tensors_ops.h) that tensors.cpp does not hold.
#pragma once

#include "harness/tensors/shared_tensors.h"

namespace attnbench::ops::attention {

/// The launch parameters that need no memory.
AttentionParams shape_of(const Case& item, bool padded);

/// Sets the pointers and what follows from the plan; what the workload lacks is null.
void point(const Workload& w, OpParams& op);

void plan(const Case& c, const LayoutVariant& variant, WorkloadPlan& plan);

OutputLayout layout_of(const AttentionParams& a);
/// The outputs as verification reads them: on the host, dense, without rows of no query.
HostOutputs download(const Workload& w);

}  // namespace attnbench::ops::attention
