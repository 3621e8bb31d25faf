#include "harness/results/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace attnbench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  const bool refused = error == EACCES || error == EROFS || error == EPERM;
  throw FileError(fmt::format("{}: error: cannot {}: {}{}", path.string(), what, std::strerror(error),
                              refused           ? "; name a place where you may write"
                              : error == EISDIR ? "; name a file"
                              : error == ENXIO  ? "; nobody reads from this pipe or socket: name a file"
                                                : ""));
}

[[noreturn]] void fail_folder(const fs::path& dir, const std::error_code& ec) {
  const bool full = ec == std::errc::no_space_on_device;
  throw FileError(
      fmt::format("{}: error: cannot make the folder: {}; {}", dir.string(), ec.message(),
                  full ? "make room" : "name a place where you may write (run, gate: --out DIR)"));
}

class File {
 public:
  File(const fs::path& path, int flags, const fs::path& shown)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666)) {
    if (fd_ < 0) fail(shown, "write", errno);
    fcntl(fd_, F_SETFL, 0);  // only the opening of a pipe must not wait
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Returns 0 or errno.
  int write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return 0;
  }
  int sync() const { return fsync(fd_) == 0 ? 0 : errno; }
  int finish() {
    const int rc = close(fd_);
    fd_ = -1;
    return rc == 0 ? 0 : errno;
  }

 private:
  int fd_;
};

}  // namespace

void check_writable(const fs::path& path) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (fs::is_directory(status)) fail(path, "write", EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  const fs::path target = fs::is_symlink(path, ec) ? fs::weakly_canonical(path, ec) : path;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const fs::path temporary = folder / fmt::format(".{}.{}.tmp", target.filename().string(), getpid());
  const File tried(temporary, O_WRONLY | O_CREAT | O_EXCL, path);
  fs::remove(temporary, ec);
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (fs::is_directory(status)) fail(path, "write", EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    const File file(path, O_WRONLY, path);
    if (const int error = file.write_all(text)) fail(path, "write", error);
    return;
  }
  // A symbolic link stays; the file that it points to is replaced.
  const fs::path target = fs::is_symlink(path, ec) ? fs::weakly_canonical(path, ec) : path;
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  static std::atomic<int> counter{0};
  const fs::path temporary =
      folder / fmt::format(".{}.{}.{}.tmp", target.filename().string(), getpid(), counter.fetch_add(1));
  {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL, path);
    int error = file.write_all(text);
    if (error == 0) error = file.sync();
    if (error == 0) error = file.finish();
    if (error == 0 && std::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
    if (error != 0) {
      unlink(temporary.c_str());
      fail(path, "write", error);
    }
  }
  // The rename is durable only when the folder is on disk too. Some file systems refuse this; that is
  // harmless.
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
}

void make_folder(const fs::path& dir) {
  std::error_code ec;
  if (!dir.empty()) fs::create_directories(dir, ec);
  if (ec) fail_folder(dir, ec);
}

fs::path make_new_folder(const fs::path& dir) {
  make_folder(dir.parent_path());
  for (int i = 1;; ++i) {
    fs::path tried = i == 1 ? dir : fs::path(fmt::format("{}-{}", dir.string(), i));
    std::error_code ec;
    if (fs::create_directory(tried, ec)) return tried;  // false if it exists already
    if (ec && ec != std::errc::file_exists) fail_folder(tried, ec);
  }
}

}  // namespace attnbench
