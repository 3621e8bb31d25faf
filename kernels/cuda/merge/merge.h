// The kernel that this folder offers to the registry.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_merge {

extern const Kernel kMergeStates;

}  // namespace attnbench::cuda_merge
