// Keeps an earlier run when another begins in its folder. It may have taken hours, and the folder may be
// named twice by mistake.
#pragma once

#include <filesystem>

namespace attnbench::cli {

/// Keeps the results of a finished run as results.previous.json, results.previous.2.json, ..., or the records
/// of an interrupted run as journal.interrupted.jsonl, and so on. Reports this on stderr. Throws FileError if
/// it cannot be done.
void keep_earlier_run(const std::filesystem::path& dir);

/// Where runs go that --out names no folder for: results/runs below the current folder.
std::filesystem::path runs_folder();

/// A name as part of a folder's: letters, digits, '-' and '_'.
std::string folder_word(const std::string& name);

/// The folder of the newest run of sweep files of this name that --out did not name; empty where there is none.
std::filesystem::path newest_run(const std::string& name);

}  // namespace attnbench::cli
