#include "harness/serving/trace_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "harness/config/near_file.h"
#include "harness/digest.h"
#include "harness/plain_file.h"

namespace attnbench {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Closes the file when it goes. zlib hands out the bytes of a file that gzip has not packed as they are.
struct CloseGz {
  void operator()(gzFile file) const { gzclose_r(file); }
};

[[noreturn]] void fail_to_read(const std::string& path, gzFile file) {
  int code = Z_OK;
  const std::string what = gzerror(file, &code);
  const bool of_system = code == Z_ERRNO;
  throw BadTraceError(fmt::format("{}: error: cannot read: {}", path,
                                  of_system ? std::strerror(errno) : what + "; unpack it with gzip -d"));
}

}  // namespace

ReadBytes read_from_file(const std::string& path) {
  if (const std::string why = why_no_file(path, "a file of requests"); !why.empty())
    throw BadTraceError(fmt::format("{}: error: {} (attnbench trace --help)", path, why));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const gzFile opened = fd < 0 ? nullptr : gzdopen(fd, "r");
  if (opened == nullptr) {
    const int code = errno;
    if (fd >= 0) close(fd);
    throw BadTraceError(
        fmt::format("{}: error: cannot open: {}; give a file of requests (attnbench trace --help){}", path,
                    std::strerror(code), near_file(path)));
  }
  constexpr unsigned kBuffer = 1 << 17;
  gzbuffer(opened, kBuffer);
  const std::shared_ptr<gzFile_s> file(opened, CloseGz{});
  return [path, file](char* to, std::size_t size) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    while (true) {
      const int got = gzread(file.get(), to, static_cast<unsigned>(std::min(size, kMost)));
      if (got > 0) return static_cast<std::size_t>(got);
      if (got < 0 && errno == EINTR) {
        gzclearerr(file.get());
        continue;
      }
      int code = Z_OK;
      gzerror(file.get(), &code);
      if (got < 0 || code != Z_OK) fail_to_read(path, file.get());  // Z_BUF_ERROR: the file is cut off
      return std::size_t{0};
    }
  };
}

std::string file_digest(const std::string& path) {
  const ReadBytes read = read_from_file(path);
  std::vector<char> buffer(std::size_t{1} << 16);
  Digest digest;
  uint64_t word = 0, bytes = 0;
  while (const std::size_t got = read(buffer.data(), buffer.size())) {
    for (std::size_t i = 0; i < got; ++i) {
      word = word << 8 | static_cast<unsigned char>(buffer[i]);
      // A step of the digest carries no bit downwards: the upper half is put into the lower one.
      if (++bytes % 8 == 0) digest.add_word(word ^ word >> 29);
    }
  }
  digest.add_word(word ^ word >> 29);
  digest.add_word(bytes);
  return fmt::format("{:08x}", digest.value32());
}

LineReader::LineReader(ReadBytes read, std::size_t buffer_bytes)
    : read_(std::move(read)), buffer_(buffer_bytes) {}

/// Fills the buffer, so that what is moved to its front is either a whole line afterwards or too long.
void LineReader::refill() {
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  while (!at_end_ && end_ < buffer_.size()) {
    const std::size_t got = read_(buffer_.data() + end_, buffer_.size() - end_);
    at_end_ = got == 0;
    end_ += got;
  }
}

/// Drops bytes up to the next newline.
void LineReader::skip_rest() {
  in_long_line_ = false;
  while (true) {
    const void* newline = std::memchr(buffer_.data() + begin_, '\n', end_ - begin_);
    if (newline != nullptr) {
      begin_ = static_cast<std::size_t>(static_cast<const char*>(newline) - buffer_.data()) + 1;
      return;
    }
    begin_ = end_;
    if (at_end_) return;
    refill();
  }
}

bool LineReader::next(TextLine& line) {
  if (in_long_line_) skip_rest();
  const auto find = [&] {
    return static_cast<const char*>(std::memchr(buffer_.data() + begin_, '\n', end_ - begin_));
  };
  const char* newline = begin_ < end_ ? find() : nullptr;
  if (newline == nullptr && !at_end_) {
    refill();
    newline = find();
  }
  if (begin_ == end_) return false;
  const char* const begin = buffer_.data() + begin_;
  line.too_long = in_long_line_ = newline == nullptr && end_ == buffer_.size();
  line.has_end = newline != nullptr || line.too_long;
  const char* const end = newline != nullptr ? newline : buffer_.data() + end_;
  line.text = {begin, static_cast<std::size_t>(end - begin)};
  begin_ = newline != nullptr ? static_cast<std::size_t>(newline - buffer_.data()) + 1 : end_;
  if (!line.text.empty() && line.text.back() == '\r') line.text.remove_suffix(1);
  if (lines_ == 0 && line.text.starts_with(kByteOrderMark)) line.text.remove_prefix(kByteOrderMark.size());
  line.number = ++lines_;
  return true;
}

}  // namespace attnbench
