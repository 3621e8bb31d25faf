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
  std::string formula;
  double tflops = 0;
  double gbs = 0;
  std::optional<double> sol;  ///< least possible time / time; nullopt where no ceiling was measured
  std::string bound;          ///< matrix, memory, exponent or launch; empty where unknown
  double floor_us = 0;        ///< the least possible time by matrix and memory terms alone
};

/// A time may undercut the roofline by this factor before it is called impossible: measured ceilings have
/// noise, little on a GPU, much on a shared CPU.
inline constexpr double kRooflineMarginGpu = 1.05;
inline constexpr double kRooflineMarginCpu = 1.5;

Roofline roofline(const CaseCost& cost, const CaseParams& params, double median_us, const Ceilings& ceilings,
                  const DeviceInfo& device);

/// True where the time is below what the ceilings allow (cold cache only: a hot one has no memory floor; not
/// where the ceilings were disturbed: they prove nothing).
bool impossible_time(const Roofline& r, double median_us, CacheMode cache, const Ceilings& ceilings,
                     const DeviceInfo& device);

}  // namespace attnbench
