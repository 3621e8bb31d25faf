// Keeps an earlier run when another begins in its folder. It may have taken hours, and the folder may be
// named twice by mistake.
#pragma once

#include <filesystem>

namespace attnbench::cli {

/// Keeps the results of a finished run as results.previous.json, results.previous.2.json, ..., or the records
/// of an interrupted run as journal.interrupted.jsonl, and so on. Reports this on stderr. Throws FileError if
/// it cannot be done.
void keep_earlier_run(const std::filesystem::path& dir);

}  // namespace attnbench::cli
