// What becomes of a run that a folder holds when another begins there: hours, perhaps, and a name given
// twice.
#pragma once

#include <filesystem>

namespace attnbench::cli {

/// Keeps the results of a finished run (results.previous.json, then results.previous.2.json, ...), or the
/// records of an interrupted one (journal.interrupted.jsonl likewise), and says so on stderr. Throws
/// FileError where that cannot be done.
void keep_earlier_run(const std::filesystem::path& dir);

}  // namespace attnbench::cli
