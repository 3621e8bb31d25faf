// How fast the machine itself was: on a CPU two probes are timed beside every sample, so that a slower
// machine is not taken for a slower kernel.
#pragma once

#include <optional>

#include "harness/report/load.h"

namespace attnbench {

/// How much longer the probes took in NEW than in BASE (1: as long), geometric means over the runs.
struct Pace {
  double cores = 1;
  std::optional<double> memory;  ///< nullopt where a side has not read memory beside its samples
};

/// nullopt unless every run of both sides tells its cores' probe, and which samples are its own.
std::optional<Pace> pace_between(const LoadedResult& base, const LoadedResult& fresh);

/// The samples in multiples of their run's cores' probe. Needs runs as pace_between does.
std::vector<double> paced_samples(const LoadedResult& result);

/// Each run's midmean: in multiples of its cores' probe where `paced`, else in microseconds.
std::vector<double> run_times(const LoadedResult& result, bool paced);

}  // namespace attnbench
