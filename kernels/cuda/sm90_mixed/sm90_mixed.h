// The kernel that this folder offers to the registry.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_mixed {

extern const Kernel kAttention;

}  // namespace attnbench::sm90_mixed
