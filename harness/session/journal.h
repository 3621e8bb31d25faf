// The append-only journal of a run: one line per finished record, on disk before the next one starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace attnbench {

class Journal {
 public:
  /// Opens or creates the file and locks it, so that two runs never write one journal. Throws FileError if
  /// the file cannot be written or another run holds the lock.
  explicit Journal(std::filesystem::path path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Keeps the first `bytes` bytes and drops the rest; 0 empties the journal.
  void cut(int64_t bytes);

  /// Writes one line, which includes its newline, and syncs it to disk. If the file has vanished with its folder,
  /// both are made anew, with all lines. Throws FileError.
  void append(const std::string& line);

  /// Whether the file is no longer where it was opened.
  bool vanished() const;

 private:
  void open_and_lock(int flags);
  void begin_anew();
  void write_all(std::string_view text) const;
  [[noreturn]] void fail(const char* what, const char* mend = "") const;

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace attnbench
