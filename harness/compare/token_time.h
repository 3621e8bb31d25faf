// One number for a replayed server: the time of attention per generated token, from a sample of its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/results/load.h"

namespace attnbench {

struct CompareRow;  // compare.h

/// A step of a replay, on one kernel.
struct StepTime {
  std::string id;     ///< of the case
  std::string group;  ///< the id without what differs between steps of one replay
  std::string kernel, device;
  ServedStep step;
  std::optional<double> us, lo, hi;  ///< median and its 95 % interval; nullopt: no right and timed result
  bool vague = false, busy = false;  ///< as in TimeResult
};

/// The steps among the results; steps that were chosen one by one are left out.
std::vector<StepTime> step_times(std::span<const Record> records);

/// A kernel on all steps of a replay. One layer: a case is one layer's launch.
struct TokenTime {
  std::string group, kernel, device;
  int64_t timed = 0;                 ///< steps that have a time
  int64_t steps = 0;                 ///< of the replay
  std::optional<double> us, lo, hi;  ///< per generated token, with a 95 % interval; nullopt: see why
  std::string why;                   ///< why there is no number
  int64_t vague = 0, busy = 0;       ///< timed steps whose time is marked `?`, or `!`
};

/// The time that all steps of the replay take, divided by the tokens that it generates. Steps were drawn from strata:
/// the mean of a stratum stands for all of its steps. The standard error is that of a bootstrap within the strata (J. Rao,
/// C. Wu, "Resampling inference with complex survey data", 1988): a resample of n drawn steps takes n - 1, so that its
/// variance is right for two, and is scaled by the share of the stratum that was not drawn. The uncertainty of each
/// time is added. There is no number if a step has no time: the others would not stand for it. A kernel that timed none is left out.
std::vector<TokenTime> token_times(std::span<const StepTime> steps);

/// Two kernels, or one before and after a change, on the same replay.
struct TokenChange {
  std::string group, base_kernel, new_kernel;
  double base_us = 0, new_us = 0;    ///< per generated token
  double ratio = 1, lo = 1, hi = 1;  ///< new / base, with a 95 % interval
};

/// The same from the ratios of a comparison's rows, weighted by the times of base. The noise of a ratio is taken to be
/// common to all steps of a replay, as that between runs is. Replays in which a step has no ratio are left out.
std::vector<TokenChange> token_changes(const ResultSet& base, const std::vector<CompareRow>& rows);

/// "attention/.../sharegpt-4f1c: cpu 12.3 us per generated token and layer (95 % interval 12.1 .. 12.5, from 64 of 2000
/// steps)". Says how many of the times are marked `?` or `!`.
std::string token_time_text(const TokenTime& t);
/// "attention/.../sharegpt-4f1c: 12.3 -> 11.9 us per generated token and layer (-3.25 %, 95 % interval -3.9 .. -2.6)".
std::string token_change_text(const TokenChange& c);

}  // namespace attnbench
