// The step of a long launch, by which its blocks keep pace (pace.cuh).
#pragma once

#include <cstdint>

#include "kernels/cuda/common/gpu_rates.h"

namespace attnbench::sm90_decode {

inline constexpr int32_t kStepBytes = 128 * 1024;  ///< of K and V, that a block reads in a step

/// Time of a step while a block on each multiprocessor reads. Together they reach 0.925 of the memory's peak,
/// which is 3.1 TB/s on an H100.
constexpr float step_ns(int multiprocessors, const hopper::GpuRates& rates) {
  return static_cast<float>(1e3 * kStepBytes * multiprocessors / (0.925 * rates.memory_bytes_per_us));
}

}  // namespace attnbench::sm90_decode
