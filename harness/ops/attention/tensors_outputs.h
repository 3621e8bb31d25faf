// The outputs of a launch of attention as verification reads them: on the host, dense, without rows of no query.
#pragma once

#include "harness/tensors/shared_tensors.h"

namespace attnbench::ops::attention {

OutputLayout layout_of(const AttentionParams& a);

HostOutputs download(const Workload& w);

}  // namespace attnbench::ops::attention
