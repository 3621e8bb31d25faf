// Right kernels that take a known share longer: what a gate must see.
#pragma once

#include <vector>

#include "kernels/registry.h"

namespace attnbench::faults {

/// slow_0_percent, slow_2_percent, slow_3_percent, slow_5_percent and slow_10_percent, for the cpu and, where
/// it is built, for cuda, and slow_20_percent and slow_250_percent for the cpu: the first attention kernel of
/// that device, then a wait of that share of the time that it took. slow_0_percent pays what measuring and
/// waiting cost and no more: the others are held against it.
std::vector<Kernel> slow_kernels();

#if ATTNBENCH_FAULTS_CUDA
/// Launches of the cuda ones, by the share in percent; null for another share.
using Launch = KernelStatus (*)(const OpParams*, const LaunchContext*, KernelMessage*);
Launch slow_cuda_launch(int percent);
#endif

/// The first attention kernel of the device in the table of built-in kernels; null where there is none.
const Kernel* first_attention_kernel(DeviceKind device);

}  // namespace attnbench::faults
