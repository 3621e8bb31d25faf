// The append-only journal of a run: one line per finished record, on disk before the next one starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace attnbench {

class Journal {
 public:
  /// Opens the file, or makes it, and locks it: two runs never write one journal. Throws FileError where it
  /// cannot be written or another run holds it.
  explicit Journal(std::filesystem::path path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Drops what stands behind so many bytes: 0 starts afresh.
  void cut(int64_t bytes);

  /// Writes one line, newline included, and syncs it. Throws FileError.
  void append(const std::string& line);

 private:
  [[noreturn]] void fail(const char* what, const char* mend = "") const;

  std::filesystem::path path_;
  int fd_;
};

}  // namespace attnbench
