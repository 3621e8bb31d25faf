// Files that are written completely or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "harness/error.h"

namespace attnbench {

/// A file or folder cannot be created or written. what() is "PATH: error: cannot ...: reason of the system".
class FileError : public Error {
 public:
  explicit FileError(const std::string& what) : Error(what, kExitUsage, "") {}  // names its path itself
};

/// Creates the folder and its parents; does nothing for an empty path. Throws FileError.
void make_folder(const std::filesystem::path& dir);

/// Creates `dir`, or DIR-2, DIR-3, ... if that exists, and its parents. Returns the folder that was created, so
/// that two processes never get the same one. Throws FileError.
std::filesystem::path make_new_folder(const std::filesystem::path& dir);

/// Throws FileError, as write_file_atomically would, if `path` cannot be written. So the error comes before
/// hours of work, not after them.
void check_writable(const std::filesystem::path& path);

/// Writes a temporary file in the same folder, syncs it and renames it over `path`, so that a reader sees the
/// old text or the new one. Anything but a regular file (a pipe that is read, /dev/stdout) is written directly.
/// Throws FileError.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace attnbench
