#include "harness/device/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "harness/error.h"
#include "harness/gigabytes.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace attnbench {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kLarge = 1 << 20;
constexpr int64_t kLeast = 64 << 20;
/// Between a program's heap and its libraries, on every 64-bit Linux.
constexpr uintptr_t kFirstPlace = 0x2000'0000'0000, kNextPlace = 0x0200'0000'0000;
constexpr int kPlaces = 16;

void* mapped(int file, void* at, int64_t size, int protection) {
  void* p = mmap(at, static_cast<std::size_t>(size), protection, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
  if (p == MAP_FAILED) return nullptr;
  if (p == at) return p;
  munmap(p, static_cast<std::size_t>(size));  // a system that does not know MAP_FIXED_NOREPLACE
  return nullptr;
}

}  // namespace

SharedMemory::SharedMemory(int64_t bytes) {
  rlimit addresses{};  // a process with a limit (ulimit -v) needs them for other things, too
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    bytes = std::min(bytes, static_cast<int64_t>(addresses.rlim_cur / 4));
  file_ = memfd_create("attnbench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  for (size_ = std::max(kLeast, (bytes + kPage - 1) / kPage * kPage); file_ >= 0 && size_ >= kLeast;
       size_ /= 2) {
    if (ftruncate(file_, size_) != 0) continue;
    for (int i = 0; i < kPlaces && base_ == nullptr; ++i) {
      void* at = std::bit_cast<void*>(kFirstPlace + static_cast<uintptr_t>(i) * kNextPlace);
      base_ = mapped(file_, at, size_, PROT_READ | PROT_WRITE);
    }
    if (base_ != nullptr) break;
  }
  if (base_ == nullptr) {
    const std::string why = std::strerror(errno);
    if (file_ >= 0) close(file_);
    throw Error(
        fmt::format(
            "no memory that two processes share ({}; ulimit -f and -v limit it, too); --in-process runs without",
            why),
        kExitFailure);
  }
  free_[0] = size_;
}

SharedMemory::~SharedMemory() {
  munmap(base_, static_cast<std::size_t>(size_));
  close(file_);
}

bool SharedMemory::seal() { return fcntl(file_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0; }

void* SharedMemory::allocate(int64_t bytes, const std::string& name) {
  const int64_t unit = bytes >= kLarge ? kPage : 256;
  const int64_t size = (std::max<int64_t>(bytes, 1) + unit - 1) / unit * unit;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const int64_t begin = (it->first + unit - 1) / unit * unit, end = it->first + it->second;
    if (begin + size > end) continue;
    const int64_t before = begin - it->first;
    if (begin + size < end) free_[begin + size] = end - begin - size;
    if (before > 0) {
      it->second = before;
    } else {
      free_.erase(it);
    }
    used_[begin] = {size, name};
    if (size >= kLarge) kept_ -= std::min(kept_, size);
    return static_cast<char*>(base_) + begin;
  }
  return nullptr;
}

bool SharedMemory::release(void* p) noexcept {
  const int64_t begin = static_cast<char*>(p) - static_cast<char*>(base_);
  const auto found = used_.find(begin);
  if (found == used_.end()) return false;
  const int64_t bytes = found->second.bytes;
  // A sealed file has no holes made into it.
  if (bytes >= kLarge && fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes) != 0)
    kept_ += bytes;
  auto it = free_.emplace(begin, bytes).first;
  used_.erase(found);
  if (used_.empty() && kept_ > 0 && ftruncate(file_, 0) == 0 && ftruncate(file_, size_) == 0) kept_ = 0;
  if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it == free_.begin()) return true;
  if (const auto last = std::prev(it); last->first + last->second == it->first) {
    last->second += it->second;
    free_.erase(it);
  }
  return true;
}

std::string SharedMemory::name_at(const void* p) const {
  const int64_t at = static_cast<const char*>(p) - static_cast<const char*>(base_);
  auto next = used_.upper_bound(at);
  return at < 0 || at >= size_ || next == used_.begin() ? "" : std::prev(next)->second.name;
}

bool SharedMemory::map(int file, void* base, int64_t size, Access access) {
  return mapped(file, base, size, access == Access::kWrites ? PROT_READ | PROT_WRITE : PROT_READ) != nullptr;
}

}  // namespace attnbench
