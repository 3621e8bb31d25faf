#include "harness/serving/trace_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "harness/digest.h"
#include "harness/plain_file.h"

namespace attnbench {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() { close(fd); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

ReadBytes read_from_file(const std::string& path) {
  if (const std::string why = why_no_file(path, "a file of requests"); !why.empty())
    throw BadTraceError(fmt::format("{}: error: {} (attnbench trace --help)", path, why));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw BadTraceError(
        fmt::format("{}: error: cannot open: {}; give a file of requests (attnbench trace --help)", path,
                    std::strerror(errno)));
  return [path, file = std::make_shared<const Descriptor>(fd)](char* to, std::size_t size) {
    while (true) {
      const ssize_t got = read(file->fd, to, size);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno == EINTR) continue;
      throw BadTraceError(fmt::format("{}: error: cannot read: {}", path, std::strerror(errno)));
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
