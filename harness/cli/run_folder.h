// The folders of a run: room for its files, and where they are if it can no longer be written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/run_options.h"
#include "harness/results/files.h"
#include "harness/results/record.h"
#include "harness/session/journal.h"
#include "harness/session/plan.h"

namespace attnbench::cli {

/// Refuses a run that cannot fit on the disk, before any work. Throws FileError.
void check_space(const std::filesystem::path& dir, std::size_t runs);

/// Refuses what --dump cannot write, and makes its folder. Throws UsageError, FileError.
void prepare_dump(const std::string& dir, const std::vector<WorkItem>& work, const SessionOptions& options);

/// Where the arrays of the one case are, or how to get those of a failing one: a line, or nothing.
std::string dump_text(const std::string& dir, const std::vector<Record>& records);

/// After `e`, which says that `dir` cannot be written. If the journal has vanished with it, writes journal and
/// reports to a new folder for temporary files, says so on stderr, and returns the paths of the reports. Throws
/// FileError if the journal is there, from which --resume goes on, or if there is no other place.
std::vector<std::filesystem::path> rescue(const FileError& e, const std::filesystem::path& dir,
                                          const Journal& journal, const RunOptions& options,
                                          const RunContext& context, const std::vector<Record>& records);

}  // namespace attnbench::cli
