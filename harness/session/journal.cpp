#include "harness/session/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace attnbench {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  throw std::runtime_error(path.string() + ": error: cannot " + what + ": " + std::strerror(errno));
}

}  // namespace

Journal::Journal(std::filesystem::path path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail(path_, "create the journal");
}

Journal::~Journal() { close(fd_); }

void Journal::append(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "append to the journal");
    done += static_cast<std::size_t>(n);
  }
  if (fsync(fd_) != 0 && errno != EINVAL) fail(path_, "sync the journal");
}

}  // namespace attnbench
