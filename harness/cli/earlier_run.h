// What becomes of a run that a folder holds when another begins there: hours, perhaps, and a name given
// twice.
#pragma once

#include <filesystem>

namespace attnbench::cli {

/// Keeps the results of a finished run (results.previous.json, then results.previous.2.json, ...), or the
/// records of an interrupted one (journal.interrupted.jsonl likewise), and says so on stderr. Throws
/// FileError where that cannot be done.
void keep_earlier_run(const std::filesystem::path& dir);

/// Where runs go that --out names no folder for: results/runs below the current folder.
std::filesystem::path runs_folder();

/// A name as part of a folder's: letters, digits, '-' and '_'.
std::string folder_word(const std::string& name);

/// The folder of the newest run of sweep files of this name that --out did not name; empty where there is none.
std::filesystem::path newest_run(const std::string& name);

}  // namespace attnbench::cli
