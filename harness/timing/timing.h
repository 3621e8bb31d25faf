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
  bool ceilings = true;   ///< measure them first; without, there is no %SOL, and on a CPU no impossible time
  double min_time_s = 0;  ///< go on until this much device time has been sampled
  int min_samples = 10;   ///< never fewer
  int max_samples = 200;
  double budget_s = 1.0;  ///< wall time after which a case stops (once min_samples are taken)
  /// Stop when both half widths are under this share of the median: of the median's interval, and of that of
  /// the mean of the middle half, since times in steps make the former look narrow.
  double target = 0.005;
};

/// What read_clocks said before, between and after the samples of a case.
struct ClockSummary {
  int readings = 0;
  std::optional<double> sm_mhz, sm_mhz_min, sm_mhz_max;  ///< median and range
  std::optional<double> mem_mhz;                         ///< median
  std::optional<double> power_w, temperature_c;          ///< highest
  std::vector<std::string> throttle;                     ///< reasons seen in any reading, sorted
  bool throttled() const { return !throttle.empty(); }
};
ClockSummary summarise(const std::vector<ClockReading>& readings);

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
  int disturbed = 0;   ///< CPU samples during which the system took a core away
  int host_bound = 0;  ///< samples whose launch was slower on the host than the spin that hides it
  /// CPU: medians of what the probes took beside the samples (Sample); 0 where none was taken.
  double cores_us = 0, memory_us = 0, handover_us = 0;
  bool near_floor = false;  ///< median under twice the time of an empty launch
  double plan_us = 0;       ///< host-side planning, outside the samples
  ClockSummary clocks;
  int copies = 1;  ///< of the tensors, which a rotating cache takes in turns
};

/// Samples `launches` in turns until the stopping rule holds, after two warm-ups or one of each. Errors of a
/// launch pass through.
TimeResult time_launches(Device& device, const std::string& name,
                         const std::vector<std::function<void()>>& launches, const TimingOptions& options);
/// The same of one launch.
TimeResult time_launches(Device& device, const std::string& name, const std::function<void()>& launch,
                         const TimingOptions& options);

/// Copies of a workload of this many bytes that a rotating cache takes, so that all of them are at least
/// three caches: a copy's turn finds nothing of it left. 1 where the workload alone is that large.
int64_t rotation_copies(double workload_bytes, int64_t cache_bytes);
inline constexpr int64_t kMaxRotationCopies = 256;

/// Median and its distribution-free 95 % interval: the order statistics whose binomial coverage reaches 95 %
/// (W. J. Conover, Practical Nonparametric Statistics, section 3.2). Under 6 samples the range.
struct MedianInterval {
  double median, lo, hi;
};
MedianInterval median_interval(std::vector<double> samples);

/// Half the width of the 95 % interval of the mean of the middle half: 1.96 standard errors from the
/// winsorised samples (R. R. Wilcox, Introduction to Robust Estimation and Hypothesis Testing,
/// section 3.3.2). Needs two samples.
double middle_half_error(std::vector<double> samples);

}  // namespace attnbench
