// Timing one kernel on one workload: single launches through Google Benchmark with manual time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/device/device.h"

namespace attnbench {

struct TimingOptions {
  CacheMode cache = CacheMode::kCold;
  bool graph = false;     ///< time replays of a captured CUDA graph
  double min_time_s = 0;  ///< go on until this much device time has been sampled
  int min_samples = 10;
  int max_samples = 200;
  double budget_s = 1.0;  ///< wall time after which a case stops (once min_samples are taken)
  double target = 0.005;  ///< stop when the interval's half width is under this share of the median
};

struct TimeResult {
  double median_us = 0;
  double lo_us = 0;  ///< 95 % interval of the median, from order statistics
  double hi_us = 0;
  std::vector<double> samples_us;  ///< all of them, in the order taken
  int iterations = 0;              ///< as Google Benchmark counted them
  double real_time_us = 0;         ///< mean, as Google Benchmark reports manual time
  double cpu_time_us = 0;          ///< host time per iteration, as Google Benchmark reports it
  CacheMode cache = CacheMode::kCold;
  bool graph = false;
  int disturbed = 0;        ///< CPU samples during which the system took a core away
  int host_bound = 0;       ///< samples whose launch was slower on the host than the spin that hides it
  bool near_floor = false;  ///< median under twice the time of an empty launch
  double plan_us = 0;       ///< host-side planning, outside the samples
};

/// Warms up twice, then samples until the stopping rule holds. Errors of `launch` pass through.
TimeResult time_launches(Device& device, const std::string& name, const std::function<void()>& launch,
                         const TimingOptions& options);

/// Median and its distribution-free 95 % interval: the order statistics whose binomial coverage reaches 95 %
/// (W. J. Conover, Practical Nonparametric Statistics, section 3.2). Under 6 samples the range.
struct MedianInterval {
  double median, lo, hi;
};
MedianInterval median_interval(std::vector<double> samples);

}  // namespace attnbench
