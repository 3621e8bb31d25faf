// Going on where a run stopped: what its journal holds, and whether it was the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/session/session.h"

namespace attnbench {

struct Finished {
  std::vector<Record> records;  ///< in the order of the plan
  int64_t whole_bytes = 0;      ///< of the journal: what stands behind them was cut short
  bool ends_a_line = true;      ///< false: the last record lacks only its newline
};

/// The finished records of a journal; a last line that was cut short is not one. Throws ResultsError, with
/// path and line, where the journal holds something else or a run that is not in `work`.
Finished read_finished(const std::filesystem::path& journal, const std::vector<WorkItem>& work);

/// The items of `work` that no record is of.
std::vector<WorkItem> unfinished(const std::vector<WorkItem>& work, const std::vector<Record>& records);

/// In words, how the run whose results.json this is differs from `context`: "it was run with --check full,
/// this run has nothing of it". Empty where both are the same run. Throws ResultsError where it cannot be
/// read.
std::vector<std::string> differences(const std::filesystem::path& results, const RunContext& context);

}  // namespace attnbench
