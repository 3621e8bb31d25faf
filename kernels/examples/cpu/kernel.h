// The kernel of this folder, for a registry.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::example {

extern const Kernel kAttention;

}  // namespace attnbench::example
