// What was measured of a kernel on a case: its times, and the rates that follow from them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/facts/device_info.h"
#include "harness/facts/median_interval.h"

namespace attnbench {

/// What was seen of the timed launches.
struct WatchSummary {
  int launches = 0;      ///< whose outputs were compared with those of a verified launch; 0: not watched
  int by_reference = 0;  ///< whose outputs were compared with the reference
  double fresh_us =
      0;  ///< median time of launches with values that the kernel had never seen; 0: there were none
};

/// Summary of the clock readings before, between and after the samples of a case.
struct ClockSummary {
  int readings = 0;
  std::optional<double> sm_mhz, sm_mhz_min, sm_mhz_max;  ///< median and range
  std::optional<double> mem_mhz;                         ///< median
  std::optional<double> power_w, temperature_c;          ///< highest
  std::vector<std::string> throttle;                     ///< reasons seen in any reading, sorted
  bool throttled() const { return !throttle.empty(); }
};

/// From this share on, the interval tells nothing but the order of magnitude: the time is not usable.
inline constexpr double kVague = 0.5;

/// What is measured of each rank, as it is called in records.
inline constexpr std::pair<const char*, double RankTimes::*> kRankFields[] = {
    {"attention_us", &RankTimes::attention_us},
    {"communication_us", &RankTimes::communication_us},
    {"correction_us", &RankTimes::correction_us},
    {"total_us", &RankTimes::total_us},
};

/// One run's part of a time that several runs were pooled in.
struct RunTimes {
  double us = 0;            ///< midmean of the run's samples; of CPU times, mean of the quickest fifth
  std::size_t samples = 0;  ///< samples of this run; samples_us holds them in the order of runs. 0: unknown
  /// CPU: medians of the probes beside the samples; 0 if there are none.
  double cores_us = 0, memory_us = 0, handover_us = 0;
};

struct TimeResult {
  double median_us = 0;
  double lo_us = 0;  ///< 95 % interval of the median, from order statistics
  double hi_us = 0;
  std::vector<double> samples_us;  ///< all samples, in the order taken
  int iterations = 0;              ///< as Google Benchmark counted them
  double real_time_us = 0;         ///< mean, as Google Benchmark reports manual time
  double cpu_time_us = 0;          ///< host time per iteration, as Google Benchmark reports it
  CacheMode cache = CacheMode::kCold;
  bool graph = false;
  TimeClock clock = TimeClock::kWall;
  int disturbed = 0;  ///< CPU samples during which others took a core (device.h)
  double other_us =
      0;  ///< where the machine is too busy to accuse a kernel: what a launch takes by another clock
  int host_bound = 0;  ///< samples whose launch was slower on the host than the spin that hides it
  /// CPU: medians of the probes' times beside the samples (Sample); 0 if there was no probe.
  double cores_us = 0, memory_us = 0, handover_us = 0;
  bool near_floor = false;  ///< median under twice the time of an empty launch
  double plan_us = 0;       ///< host-side planning, outside the samples
  ClockSummary clocks;
  /// Copies of the tensors: a rotating cache uses them in turns, a watched launch takes one at random.
  int copies = 1;
  WatchSummary watch;
  /// Several devices: medians by rank, and of Sample::skew_us. The time of the case is that of the slowest rank.
  std::vector<RankTimes> ranks;
  double skew_us = 0;
  int runs = 1;                    ///< that the samples come from
  std::vector<RunTimes> of_runs;   ///< if runs were pooled; else empty
  std::optional<double> alone_us;  ///< what the exchanges between the devices take alone, by measured times

  /// Where the interval ends, by the slower of two clocks that disagree.
  double upper_us() const { return std::max(hi_us, other_us); }
  /// Half the 95 % interval as a share of the median; 0 if it is unknown.
  double half_interval() const {
    return median_us > 0 && lo_us <= hi_us ? attnbench::half_interval(median_us, lo_us, upper_us()) : 0;
  }
  bool vague() const { return half_interval() >= kVague; }
  /// Others took a core during more than half of the samples, so the time is unreliable.
  bool busy() const { return 2 * static_cast<std::size_t>(disturbed) > samples_us.size(); }
};

struct Roofline {
  double flop = 0;
  double bytes = 0;
  std::optional<double> executed_flop;  ///< whole tiles, masked parts included; if the kernel declares a tile
  std::string formula;                  ///< of flop and bytes: "FLOP; BYTES"
  double tflops = 0;
  double gbs = 0;
  std::optional<double> sol;  ///< floor_us / time; nullopt if no ceiling was measured
  std::string bound;          ///< matrix, memory, exponent, l2 or launch; empty if unknown
  double floor_us = 0;        ///< the least time that the measured ceilings allow, by matrix and memory terms
  double limit_us = 0;        ///< the least time that the hardware allows; 0 if unknown
};

}  // namespace attnbench
