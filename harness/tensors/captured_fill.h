// Fills a tensor of a case with captured values.
#pragma once

#include <vector>

#include "harness/config/captured.h"
#include "harness/device/device.h"

namespace attnbench {

/// Like Device::fill, with the rows of `captured` as values. The job's tensor is q, K or V; `owners` are those
/// of its rows, on the host, and the tensor takes `bytes`. What lies between its rows becomes poison. Throws
/// TooLarge if the host has no memory for a copy.
void fill_captured(Device& device, const FillJob& job, const std::vector<RowOwner>& owners, int64_t bytes,
                   const CapturedTensors& captured);

}  // namespace attnbench
