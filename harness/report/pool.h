// Equal runs become one results file: the baseline of a gate.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attnbench {

/// The first file, with the samples of all files in each entry that passed in all of them, their median and
/// its interval, in `time.runs` how many runs they are from, in `time.run_us` the midmean of each, in
/// `time.run_samples` how many samples, and on a CPU what the probes took. `clocks.sm_mhz` is the mean. Of an
/// entry that did not pass in some file, the first such file's stands. Throws ResultsError.
nlohmann::ordered_json pool_result_files(const std::vector<std::string>& paths);

}  // namespace attnbench
