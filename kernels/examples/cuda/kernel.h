// The kernel that this folder offers to a registry.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_example {

extern const Kernel kAttention;

}  // namespace attnbench::cuda_example
