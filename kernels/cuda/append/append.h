// The kernel that this folder offers to the registry.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_append {

extern const Kernel kKvAppend;

}  // namespace attnbench::cuda_append
