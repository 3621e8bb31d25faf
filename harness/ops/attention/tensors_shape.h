// The launch parameters of attention that need no memory.
#pragma once

#include "harness/cases/case.h"
#include "kernels/contract/kernel.h"

namespace attnbench::ops::attention {

AttentionParams shape_of(const Case& item, bool padded);

}  // namespace attnbench::ops::attention
