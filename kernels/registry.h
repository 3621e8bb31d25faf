// The table of built-in kernels: registry.cpp has one line per kernel.
#pragma once

#include <span>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// A list of kernels. The harness takes it as an argument and never names a kernel itself.
using KernelTable = std::span<const Kernel* const>;

/// Built-in kernels, in the order in which they run and are listed.
KernelTable builtin_kernels();

}  // namespace attnbench
