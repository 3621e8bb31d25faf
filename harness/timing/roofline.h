// What a time means: rates, and the share of the speed of light that the binding term allows.
#pragma once

#include <optional>
#include <string>

#include "harness/cases/cost.h"
#include "harness/device/device.h"

namespace attnbench {

struct Roofline {
  double flop = 0;
  double bytes = 0;
  std::optional<double>
      executed_flop;  ///< with masked and padded parts of tiles; where the kernel tells its tile
  std::string formula;
  double tflops = 0;
  double gbs = 0;
  std::optional<double> sol;  ///< least possible time / time; nullopt where no ceiling was measured
  std::string bound;          ///< matrix, memory, exponent, l2 or launch; empty where unknown
  double floor_us = 0;        ///< the least time that the measured ceilings allow, by matrix and memory terms
  double limit_us = 0;        ///< the least time that the hardware allows; 0 where nothing is known of it
};

/// A CPU's peak is not known (turbo, shared cores), so measured ceilings times this stand for it.
inline constexpr double kRooflineMarginCpu = 1.5;
/// Two events are about half a microsecond apart at best (CUDA runtime API, cudaEventElapsedTime).
inline constexpr double kTimerResolutionUs = 0.5;

Roofline roofline(const CaseCost& cost, const CaseParams& params, double median_us, CacheMode cache,
                  const Ceilings& ceilings, const DeviceInfo& device);

/// True where no right kernel can be so fast. On a GPU by what the hardware cannot exceed (peak.h), with a
/// cold or rotating cache: measured ceilings are no proof, a matrix product runs into the power limit where a
/// shorter kernel does not. On a CPU by the measured ceilings with a margin, unless they were disturbed. Of a
/// hot cache only the arithmetic binds.
bool impossible_time(const Roofline& r, double median_us, const Ceilings& ceilings, const DeviceInfo& device);

}  // namespace attnbench
