// How fast the machine itself was: on a CPU probes are timed beside every sample, so that a slower machine is
// not taken for a slower kernel.
#pragma once

#include <optional>
#include <string>

#include "harness/record/load.h"

namespace attnbench {

/// How much longer the probes took in NEW than in BASE (1: as long): geometric means over the runs of each
/// side, less the quarter that took longest and the quarter that took shortest.
struct Pace {
  double cores = 1;
  std::optional<double> memory;  ///< nullopt where a side has not read memory beside its samples
};

/// nullopt unless every run of both sides tells its cores' probe, and which samples are its own.
std::optional<Pace> pace_between(const LoadedResult& base, const LoadedResult& fresh);

/// Waits of threads for each other that differ by less are of the same machine. On two cores of a virtual
/// machine they are four times as long in one minute as in the next (results/gate.md).
inline constexpr double kSameHandover = 1.5;

enum class LikeRuns {
  kUnknown,  ///< a run does not tell how long threads waited for each other: nothing was left out
  kAlike,    ///< left are the runs in which they waited as long as in most of NEW
  kNone,     ///< BASE has too few such runs (3, or all where it has fewer): nothing was left out
};
/// Leaves out the runs of both sides whose cores lay further apart, or closer, than in NEW's median run.
/// Needs runs as pace_between does.
LikeRuns keep_like_runs(LoadedResult& base, LoadedResult& fresh);

/// A probe that took more than this many times as long, on one side as on the other or within one, was itself
/// disturbed: times divided by it say nothing.
inline constexpr double kMostProbeMove = 2;

/// What the clock and the probes say of one comparison; ratios are NEW / BASE.
struct Clocked {
  double time_ratio = 1;   ///< of microseconds
  double paced_ratio = 1;  ///< of multiples of the cores' probe
  double effect = 0;       ///< the smallest difference that counts
  bool in_turns = false;   ///< run i of NEW was made right beside run i of BASE
};

/// The one rule by which a verdict never contradicts the clock: why this case stays undecided, in words, or
/// an empty string. It does where time and paced time differ by more than the effect in opposite directions,
/// and where cores_us or memory_us, which times are divided by, moved by more than kMostProbeMove between the
/// sides, or within the runs of one side less the outer quarters. Nothing is divided by handover_us, which
/// has two states on an undisturbed virtual machine, four times apart: keep_like_runs looks at it. Needs runs
/// as pace_between does.
std::string contradicts_clock(const LoadedResult& base, const LoadedResult& fresh, const Clocked& clocked);

/// The samples in multiples of their run's cores' probe. Needs runs as pace_between does.
std::vector<double> paced_samples(const LoadedResult& result);

/// Each run's midmean: in multiples of its cores' probe where `paced`, else in microseconds.
std::vector<double> run_times(const LoadedResult& result, bool paced);

}  // namespace attnbench
