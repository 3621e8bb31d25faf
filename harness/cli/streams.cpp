#include "harness/cli/streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "harness/report/table.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

/// If the program is started with a closed stream, the next opened file takes the stream's number, and output
/// would go into that file.
void open_closed_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      [[maybe_unused]] const int opened = open("/dev/null", O_RDWR);  // takes the lowest number
    }
  }
}

/// The text as it may be shown, with the colours that print_table puts into it.
std::string with_colours(std::string_view text) {
  std::string out;
  for (;;) {
    std::size_t begin = 0;
    const auto is_own = [&](std::string_view code) { return text.substr(begin).starts_with(code); };
    const std::string_view* own = std::end(kColourCodes);
    while ((begin = text.find('\033', begin)) != text.npos &&
           (own = std::find_if(std::begin(kColourCodes), std::end(kColourCodes), is_own)) ==
               std::end(kColourCodes)) {
      ++begin;
    }
    out += printable(text.substr(0, begin));
    if (begin == text.npos) return out;
    out += *own;
    text.remove_prefix(begin + own->size());
  }
}

/// Bytes at the end that begin a character which the next write ends.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t needed = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return needed > n ? n : 0;
  }
  return 0;
}

class Shown : public std::streambuf {
 public:
  Shown(std::FILE* to, bool is_result) : to_(to), is_result_(is_result) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::lock_guard lock(mutex_);  // threads of plug-ins may print, too
    rest_.append(text, static_cast<std::size_t>(size));
    const std::string given = rest_.substr(0, rest_.size() - unfinished_bytes(rest_));
    rest_.erase(0, given.size());
    const std::string shown = is_result_ ? with_colours(given) : printable(given);
    const bool arrived = std::fwrite(shown.data(), 1, shown.size(), to_) == shown.size();
    return arrived || !is_result_ ? size : 0;
  }
  int_type overflow(int_type c) override {
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? traits_type::not_eof(c) : traits_type::eof();
  }
  int sync() override { return std::fflush(to_) == 0 || !is_result_ ? 0 : -1; }

 private:
  std::FILE* to_;
  bool is_result_;  ///< a failed write is an error
  std::mutex mutex_;
  std::string rest_;
};

}  // namespace

void prepare_streams() {
  open_closed_streams();
  // Not SIG_IGN, which programs that are started from here would inherit.
  std::signal(SIGPIPE, [](int) {});
  // For the destructors of plug-ins, which run after those of this program.
  static Shown& out = *new Shown(stdout, true);
  static Shown& err = *new Shown(stderr, false);
  std::cout.rdbuf(&out);
  std::cerr.rdbuf(&err);
}

bool printed_all() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && std::cout.good() && std::ferror(stdout) == 0) return true;
  pollfd fd{STDOUT_FILENO, POLLOUT, 0};
  if (error == EPIPE || (poll(&fd, 1, 0) > 0 && (fd.revents & POLLERR) != 0)) return true;
  std::cerr << fmt::format("attnbench: error: cannot write to standard output{}{}\n", error != 0 ? ": " : "",
                           error != 0 ? std::strerror(error) : "");
  return false;
}

}  // namespace attnbench::cli
