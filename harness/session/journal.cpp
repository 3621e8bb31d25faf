#include "harness/session/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

#include "harness/results/files.h"

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

Journal::Journal(std::filesystem::path path) : path_(std::move(path)) { open_and_lock(0); }

void Journal::open_and_lock(int flags) {
  const int fd = open(path_.c_str(), flags | O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) fail("create the journal", errno == EEXIST ? "; another run has taken the folder" : "");
  const auto refuse = [&](const char* why) {
    close(fd);
    throw FileError(path_.string() + ": error: " + why);
  };
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) refuse("this is a pipe; name another --out");
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // the file system has no locks
    if (std::chrono::steady_clock::now() > limit)
      refuse("another attnbench is writing it; give this run a folder of its own");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  sync_folder(path_);
}

Journal::~Journal() { close(fd_); }

void Journal::cut(int64_t bytes) {
  // A device such as /dev/null has no length.
  if (ftruncate(fd_, bytes) != 0 && errno != EINVAL) fail("cut the journal");
}

void Journal::append(const std::string& line) {
  if (vanished()) begin_anew();
  write_all(line);
  if (fsync(fd_) != 0 && errno != EINVAL) fail("sync the journal");
}

bool Journal::vanished() const {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0 && (errno == ENOENT || errno == ENOTDIR)) return true;
  return fstat(fd_, &status) == 0 && status.st_nlink == 0;
}

void Journal::begin_anew() {
  std::string held;
  char buffer[1 << 16];
  while (const ssize_t n = pread(fd_, buffer, sizeof buffer, std::ssize(held))) {
    if (n < 0) fail("read the journal, which was removed");
    held.append(buffer, static_cast<std::size_t>(n));
  }
  make_folder(path_.parent_path());
  open_and_lock(O_EXCL);
  write_all(held);
}

void Journal::write_all(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      fail("append to the journal", "; what it holds is kept: make room, then continue with --resume");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace attnbench
