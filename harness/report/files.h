// Report files, each written whole or not at all.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/error.h"
#include "harness/report/record.h"

namespace attnbench {

/// A file or folder that cannot be made or written. what() is "PATH: error: cannot ...: reason of the
/// system".
class FileError : public Error {
 public:
  explicit FileError(const std::string& what) : Error(what, kExitUsage, "") {}  // it names its place itself
};

/// Makes the folder and those above it; of an empty path, nothing. Throws FileError.
void make_folder(const std::filesystem::path& dir);

/// Throws FileError, as write_file_atomically would, where `path` cannot be written: before hours of work,
/// not after them.
void check_writable(const std::filesystem::path& path);

/// Writes a temporary file in the same folder, syncs it and renames it over `path`, so that a reader sees the
/// old text or the new one. What is not a regular file (a pipe, /dev/stdout) is written directly. Throws
/// FileError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

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
