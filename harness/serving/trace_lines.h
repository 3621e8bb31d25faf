// The lines of a file, read through a fixed buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/error.h"

namespace attnbench {

/// what() is "FILE:LINE:COLUMN: error: WHAT; MEND", without the place in the file where there is none. Columns are bytes,
/// from 1.
class BadTraceError : public Error {
 public:
  explicit BadTraceError(const std::string& what) : Error(what, kExitUsage, "") {}  // names the place itself
};

/// Writes up to `size` bytes to `to` and returns their number; 0 at the end.
using ReadBytes = std::function<std::size_t(char* to, std::size_t size)>;

/// Reads the file at `path`; what gzip has packed is unpacked. Throws BadTraceError if it cannot be opened or read.
ReadBytes read_from_file(const std::string& path);

/// Tells files of other content apart: 8 hexadecimal digits of all bytes that read_from_file gives. Throws as read_from_file does.
std::string file_digest(const std::string& path);

struct TextLine {
  std::string_view text;  ///< without its line end, "\n" or "\r\n"; of one that is too long, the beginning
  int64_t number = 0;     ///< from 1
  bool has_end = true;    ///< false: the file ends behind it without a newline
  bool too_long = false;
};

/// Bytes move once, at most, within the buffer: those of a line that the buffer's end divides. A byte order mark in
/// front of the first line is dropped.
class LineReader {
 public:
  /// A line of `buffer_bytes` or more, with its end, is too long.
  explicit LineReader(ReadBytes read, std::size_t buffer_bytes = 1 << 20);

  /// False at the end. The line is valid until the next call.
  bool next(TextLine& line);
  std::size_t buffer_bytes() const { return buffer_.size(); }

 private:
  void refill();
  void skip_rest();

  ReadBytes read_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what is read and not yet returned
  int64_t lines_ = 0;
  bool at_end_ = false, in_long_line_ = false;
};

}  // namespace attnbench
