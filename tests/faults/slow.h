// Right kernels that take a known share longer, which a gate must detect.
#pragma once

#include <vector>

#include "kernels/registry.h"

namespace attnbench::faults {

/// slow_0_percent, slow_2_percent, slow_3_percent, slow_5_percent and slow_10_percent, for the cpu and for
/// cuda if it is built, and slow_20_percent, slow_100_percent and slow_250_percent for the cpu. Each runs the first attention
/// kernel of its device, then waits for that share of the time that it took. slow_0_percent has only the cost
/// of measuring and waiting; the others are compared with it.
std::vector<Kernel> slow_kernels();

#if ATTNBENCH_FAULTS_CUDA
/// Launch functions of the cuda kernels by their share in percent; null for another share.
using Launch = KernelStatus (*)(const OpParams*, const LaunchContext*, KernelMessage*);
Launch slow_cuda_launch(int percent);
#endif

/// The first attention kernel of the device in the table of built-in kernels; null if there is none.
const Kernel* first_attention_kernel(DeviceKind device);

}  // namespace attnbench::faults
