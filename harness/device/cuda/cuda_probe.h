// The GPUs that can be used.
#pragma once

#include <string>
#include <vector>

#include "harness/device/device.h"

namespace attnbench {

/// CUDA ordinals of the GPUs with compute capability 8.0 or more, in CUDA's order. `cuda:N` is the N-th of
/// them. If there are none, `reason` says why in one line.
std::vector<int> usable_cuda_ordinals(std::string& reason);

/// Everything known about the GPU with this CUDA ordinal. Throws DeviceError.
DeviceInfo cuda_device_info(int cuda_ordinal, int index);

}  // namespace attnbench
