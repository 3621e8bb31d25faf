// The formats of a run's report, and the files that hold them.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "harness/record/record.h"

namespace attnbench {

/// Names that write_reports takes: "json", "csv", "md", "junit".
const std::vector<std::string>& report_formats();

/// Throws Error, with what is allowed, for the first name that is not a format.
void check_formats(std::span<const std::string> formats);

/// Makes the folder where it is missing and writes results.json, always, and results.csv, results.md and
/// junit.xml as asked. Returns the paths written. Throws Error before anything is written, or
/// FileError.
std::vector<std::filesystem::path> write_reports(const std::filesystem::path& dir,
                                                 std::span<const std::string> formats,
                                                 const RunContext& context, std::span<const Record> records);

}  // namespace attnbench
