// The append-only journal of a run: one line per finished record, on disk before the next one starts.
#pragma once

#include <filesystem>
#include <string>

namespace attnbench {

class Journal {
 public:
  /// Starts an empty file. Throws std::runtime_error "PATH: error: ..." where it cannot be written.
  explicit Journal(std::filesystem::path path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Writes one line, newline included, and syncs it. Throws std::runtime_error.
  void append(const std::string& line);

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace attnbench
