// Reading memory of a device from a kernel's plan, for kernels in Python.
#pragma once

#include <cstddef>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Copies `bytes` from memory of the launch's device to the host, after what its stream holds; 0: done.
int read_memory(const LaunchContext& context, void* to, const void* from, std::size_t bytes);

}  // namespace attnbench
