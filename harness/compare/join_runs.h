// Pools equal runs: joins their samples, in memory and in a results file (the baseline of a gate).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/results/load.h"

namespace attnbench {

/// TimeResult::of_runs, or the one run that there is; empty if there are no samples.
std::vector<RunTimes> runs_of(const Record& result);

/// Sets the median and its interval from the samples.
void set_median(TimeResult& time);

/// Adds the samples of another run of the same cases. An entry that passed on both sides gets the samples of
/// both runs and their median. Otherwise the worse of the two entries stays. Entries that only `more` has are
/// added.
void pool_runs(ResultSet& set, const ResultSet& more);

/// The first file with the runs of all files pooled. An entry that passed in all files gets the samples of
/// all, their median and its interval. `time.runs` is the number of runs; `time.run_us` and
/// `time.run_samples` are the midmean and the number of samples of each; on a CPU the probes are listed too.
/// `clocks.sm_mhz` is the mean. Other entries are as pool_runs leaves them.
/// Throws ResultsError.
nlohmann::ordered_json pool_result_files(const std::vector<std::string>& paths);

}  // namespace attnbench
