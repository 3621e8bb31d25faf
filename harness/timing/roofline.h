// Rates that follow from a time, and its share of the speed of light: of what the binding ceiling allows.
#pragma once

#include "harness/cases/cost.h"
#include "harness/device/device.h"
#include "harness/facts/time_result.h"

namespace attnbench {

/// A CPU's peak is unknown (turbo, shared cores): measured ceilings times this factor are used instead.
inline constexpr double kRooflineMarginCpu = 1.5;
/// Resolution of CUDA events, about half a microsecond (CUDA runtime API, cudaEventElapsedTime).
inline constexpr double kTimerResolutionUs = 0.5;

/// The rates of a case whose launches took `median_us`, and their limits. Only formula, flop and bytes are
/// set if `median_us` is not positive. Rates of a case of several devices are those of all together; the limits
/// allow it as many times the ceilings of one.
Roofline roofline(const CaseCost& cost, const CaseParams& params, double median_us, CacheMode cache,
                  const Ceilings& ceilings, const DeviceInfo& device);

/// Whether no right kernel can be this fast. A GPU's limit is what its hardware cannot exceed (peak.h):
/// measured ceilings are no proof, because a matrix product meets the power limit and a shorter kernel does
/// not. A CPU's limit is the measured ceilings with a margin, unless they were disturbed. With a hot cache,
/// memory is no limit on a GPU; on a CPU, only bytes beyond the cache's size count.
bool impossible_time(const Roofline& r, double median_us, const Ceilings& ceilings, const DeviceInfo& device);

}  // namespace attnbench
