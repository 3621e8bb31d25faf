// Files, each written whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "harness/error.h"

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

}  // namespace attnbench
