// How fast the machine itself was. On a CPU, probes are timed beside every sample, so that a slower machine
// is not taken for a slower kernel.
#pragma once

#include <optional>
#include <string>

#include "harness/results/load.h"

namespace attnbench {

/// Time of the probes in NEW divided by that in BASE (1: equal). These are geometric means over the runs of
/// each side, without the slowest and the fastest quarter.
struct Pace {
  double cores = 1;
  std::optional<double> memory;  ///< nullopt if a side has no probe of memory beside its samples
};

/// nullopt unless every run of both sides has the cores' probe and the number of its samples.
std::optional<Pace> pace_between(const Record& base, const Record& fresh);

/// Ratio up to which two handover times (the wait of threads for each other) count as equal. On two cores of
/// a virtual machine they are four times as long in one minute as in the next (harness/compare/README.md).
inline constexpr double kSameHandover = 1.5;

enum class LikeRuns {
  kUnknown,  ///< a run has no handover time: nothing was left out
  kAlike,    ///< kept are the runs with about the handover time of NEW's median run
  kNone,     ///< fewer than min(3, runs of BASE) runs of BASE are such: nothing was left out
};
/// Leaves out the runs of both sides whose cores were further apart, or closer, than in NEW's median run.
/// Requires pace_between to return a value.
LikeRuns keep_like_runs(Record& base, Record& fresh);

/// A probe that took more than this many times as long, between the sides or within one, was itself
/// disturbed. Times divided by it say nothing.
inline constexpr double kMostProbeMove = 2;

/// But a change of more than this many times what the probe moved is no machine's doing.
inline constexpr double kMostByProbe = 4;

/// What the clock and the probes say about one comparison. Ratios are NEW / BASE.
struct Clocked {
  double time_ratio = 1;   ///< ratio of microseconds
  double paced_ratio = 1;  ///< ratio of multiples of the cores' probe
  double effect = 0;       ///< the smallest difference that counts
  bool in_turns = false;   ///< run i of NEW was made right beside run i of BASE
};

/// Ensures that no verdict contradicts the clock: returns why this case stays undecided, in words, or an
/// empty string. There are two reasons:
///
/// - Time and paced time differ by more than the effect in opposite directions.
/// - cores_us or memory_us, by which times are divided, moved by more than kMostProbeMove: between the sides,
///   or within the runs of one side without the outer quarters; unless the change is far larger (kMostByProbe).
///
/// handover_us is not checked here, because no time is divided by it. It has two states on an undisturbed
/// virtual machine, four times apart; keep_like_runs handles them. Requires pace_between to return a value.
std::string contradicts_clock(const Record& base, const Record& fresh, const Clocked& clocked);

/// The largest factor by which other processes on the cores may slow the samples of one side. Samples longer
/// than the scheduler's turns are slowed in proportion to the number of processes. A short sample may wait
/// for many turns: 260 us became 74,000 beside 25 processes. Then the probes beside the samples would have
/// waited too; without probes, the faster side tells how long the samples would be.
double most_by_sharing(const Record& base, const Record& fresh, bool fresh_is_shared);

/// Fewer runs of a side tell too little about how far equal runs lie apart.
inline constexpr std::size_t kLeastTurns = 4;

/// A change of more than this many times what lies between equal runs is no machine's doing.
inline constexpr double kMostByTurns = 3;

/// How far equal runs of these sides lie apart by the clock, as a ratio >= 1: the slowest run over the fastest
/// of a side, without its outer quarters, on the side where this is more. nullopt if a side has fewer than
/// kLeastTurns runs, or runs that were not made in pairs. Sides that were made in turns share what disturbs
/// the machine, so this ratio also bounds what a disturbance does between them.
std::optional<double> disturbance_in_turns(const Record& base, const Record& fresh);

/// The least factor that a change must exceed to be no machine's doing: `most`, which other rules ask for, or in turns
/// kMostByTurns times the disturbance, if that is less.
double least_change(const Record& base, const Record& fresh, bool in_turns, double most);

/// The samples as multiples of the cores' probe of their run. Requires pace_between to return a value.
std::vector<double> paced_samples(const Record& result);

/// Whether both sides ran at the same time (a gate by CPU time): the machine is the same for both.
inline bool in_slices(const Record& base, bool in_turns) {
  return in_turns && base.time && base.time->clock == TimeClock::kCpu;
}

std::vector<std::vector<double>> samples_by_run(const Record& result);

/// The midmean of each run: in multiples of its cores' probe if `paced`, else in microseconds.
std::vector<double> run_times(const Record& result, bool paced);

}  // namespace attnbench
