#include "harness/device/core_waits.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace attnbench {
namespace {

/// The wait that an open schedstat counts, in seconds. Its text is "run wait slices".
std::optional<double> wait_of(int file) {
  std::array<char, 128> text{};
  if (pread(file, text.data(), text.size() - 1, 0) <= 0) return std::nullopt;
  char* end = nullptr;
  std::strtoull(text.data(), &end, 10);
  const char* second = end;
  const unsigned long long ns = std::strtoull(second, &end, 10);
  if (end == second) return std::nullopt;
  return 1e-9 * static_cast<double>(ns);
}

}  // namespace

CoreWaits::CoreWaits() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const int file = open((entry.path() / "schedstat").c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (const std::optional<double> wait = wait_of(file)) {
      threads_.push_back({file, *wait});
    } else {
      close(file);
    }
  }
}

CoreWaits::~CoreWaits() {
  for (const Thread& t : threads_) close(t.file);
}

void CoreWaits::start() {
  for (Thread& t : threads_) t.before = wait_of(t.file).value_or(t.before);
}

std::optional<double> CoreWaits::longest() const {
  if (threads_.empty()) return std::nullopt;
  double most = 0;
  for (const Thread& t : threads_) most = std::max(most, wait_of(t.file).value_or(t.before) - t.before);
  return most;
}

}  // namespace attnbench
