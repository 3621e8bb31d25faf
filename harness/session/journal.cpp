#include "harness/session/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "harness/record/files.h"

namespace attnbench {
namespace {

/// A killed run holds its lock until the system has removed the process.
constexpr std::chrono::seconds kPatience{3};

void sync_folder(const std::filesystem::path& file) {
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems refuse; that is harmless
  close(fd);
}

}  // namespace

void Journal::fail(const char* what, const char* mend) const {
  throw FileError(path_.string() + ": error: cannot " + what + ": " + std::strerror(errno) + mend);
}

Journal::Journal(std::filesystem::path path)
    : path_(std::move(path)), fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) fail("create the journal");
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // the file system has no locks
    if (std::chrono::steady_clock::now() > limit) {
      close(fd_);
      throw FileError(path_.string() +
                      ": error: another attnbench is writing it; give this run a folder of its own");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  sync_folder(path_);
}

Journal::~Journal() { close(fd_); }

void Journal::cut(int64_t bytes) {
  // A device such as /dev/null has no length.
  if (ftruncate(fd_, bytes) != 0 && errno != EINVAL) fail("cut the journal");
}

void Journal::append(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("append to the journal", "; what it holds is kept: make room and go on with --resume");
    done += static_cast<std::size_t>(n);
  }
  if (fsync(fd_) != 0 && errno != EINVAL) fail("sync the journal");
}

}  // namespace attnbench
