// Equal runs become one: their samples side by side, in memory and as a results file (the baseline of a gate).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/record/load.h"

namespace attnbench {

/// per_run, or the one run that there is; empty where there are no samples.
std::vector<LoadedRun> runs_of(const LoadedResult& result);

/// Adds the samples of a further run of the same things: an entry that passed on both sides gets both runs'
/// samples and their median, one that did not takes what `more` says, where that is worse. Entries that only
/// `more` has are added.
void pool_runs(ResultSet& set, const ResultSet& more);

/// The first file, with the samples of all files in each entry that passed in all of them, their median and
/// its interval, in `time.runs` how many runs they are from, in `time.run_us` the midmean of each, in
/// `time.run_samples` how many samples, and on a CPU what the probes took. `clocks.sm_mhz` is the mean. Of an
/// entry that did not pass in some file, the first such file's stands. Throws ResultsError.
nlohmann::ordered_json pool_result_files(const std::vector<std::string>& paths);

}  // namespace attnbench
