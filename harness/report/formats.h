// The formats of a run's report, and their files.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// Names that write_reports takes: "json", "csv", "md", "junit".
const std::vector<std::string>& report_formats();

/// Throws Error for the first name that is not a format; the message lists the formats.
void check_formats(std::span<const std::string> formats);

/// Creates the folder if it is missing. Writes results.json always, and results.csv, results.md and junit.xml
/// as requested. Returns the paths written. Throws Error before anything is written, or FileError.
std::vector<std::filesystem::path> write_reports(const std::filesystem::path& dir,
                                                 std::span<const std::string> formats,
                                                 const RunContext& context, std::span<const Record> records);

}  // namespace attnbench
