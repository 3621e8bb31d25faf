// Times one kernel on one workload: single launches through Google Benchmark with manual time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "harness/facts/time_result.h"

namespace attnbench {

struct TimingOptions {
  CacheMode cache = CacheMode::kCold;
  bool graph = false;  ///< time replays of a captured CUDA graph
  TimeClock clock = TimeClock::kWall;
  bool ceilings = true;   ///< measure ceilings first; without: no %SOL, and on a CPU no impossible time
  double min_time_s = 0;  ///< go on until this much device time has been sampled
  int min_samples = 10;   ///< least number of samples
  int max_samples = 200;  ///< most samples
  double budget_s = 1.0;  ///< time, by the clock, after which a case stops (once min_samples are taken)
  /// Sampling stops when two half widths are at most this share of the median: that of the median's interval,
  /// and middle_half_error. Times in steps make the median's interval look narrow, so it is not enough.
  double target = 0.005;
  bool watch = true;  ///< look at every timed launch (session/timed_launches.h); false: trust the kernel
  uint64_t order_seed = 0;  ///< of everything that a kernel must not predict; 0: from the system
};

ClockSummary summarise(const std::vector<ClockReading>& readings);

/// Calls `sample` until the stopping rule holds, after `warmups` calls whose times are dropped. Its exceptions
/// reach the caller.
TimeResult time_samples(Device& device, const std::string& name, const std::function<Sample()>& sample,
                        int warmups, const TimingOptions& options);

/// Number of copies of a workload for a rotating cache. All copies together have at least three times the
/// cache's bytes, so that nothing of a copy is cached when its turn comes. 1 if the workload alone is that
/// large.
int64_t rotation_copies(double workload_bytes, int64_t cache_bytes);
inline constexpr int64_t kMaxRotationCopies = 256;

}  // namespace attnbench
