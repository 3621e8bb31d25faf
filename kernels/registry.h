// The explicit table of built-in kernels: one line per kernel in registry.cpp.
#pragma once

#include <span>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// A list of kernels to choose from; the harness is handed one and never names a kernel itself.
using KernelTable = std::span<const Kernel* const>;

/// Built-in kernels, in the order they are run and listed.
KernelTable builtin_kernels();

}  // namespace attnbench
