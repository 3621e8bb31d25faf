// Resuming a run that stopped: what its journal holds, and whether it was the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/results/load.h"
#include "harness/session/session.h"

namespace attnbench {

struct Finished {
  std::vector<Record> records;  ///< in the order of the plan
  int64_t whole_bytes = 0;      ///< of the journal; bytes after these belong to an incomplete line
  bool ends_a_line = true;      ///< false: only the newline of the last record is missing
};

/// The finished records of a journal; an incomplete last line is not one. Throws ResultsError, with path and
/// line, if the journal holds anything else or an item that is not in `work`.
Finished read_finished(const std::filesystem::path& journal, const std::vector<WorkItem>& work);

/// The items of `work` without a record.
std::vector<WorkItem> unfinished(const std::vector<WorkItem>& work, const std::vector<Record>& records);

/// How the run of these results differs from `now` and `work`, in words: "arguments: '--check full' there, nothing
/// here". Empty if both are the same run. Throws ResultsError if no run of attnbench wrote them.
std::vector<std::string> differences(const ResultSet& there, const RunContext& now,
                                     const std::vector<WorkItem>& work);

/// The command line of a run; empty if it is unknown.
std::string began_as(const RunContext& context);

}  // namespace attnbench
