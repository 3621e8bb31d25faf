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

#include "harness/error.h"
#include "harness/gigabytes.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace attnbench {
namespace {

const int64_t kPage = sysconf(_SC_PAGESIZE);
constexpr int64_t kLarge = 1 << 20;
constexpr int64_t kLeast = 64 << 20;
constexpr int64_t kNear =
    1 << 16;  ///< within it, an address is named by a block; within the size of a large one, too
/// Between a program's heap and its libraries, on every 64-bit Linux.
constexpr uintptr_t kFirstPlace = 0x2000'0000'0000, kNextPlace = 0x0200'0000'0000;
constexpr int kPlaces = 16;

int protection_of(Access access) { return access == Access::kWrites ? PROT_READ | PROT_WRITE : PROT_READ; }

int64_t pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

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
  for (size_ = std::max(kLeast, pages(bytes)); file_ >= 0 && size_ >= kLeast; size_ /= 2) {
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
  free_ = FreeRanges(size_);
}

SharedMemory::~SharedMemory() {
  munmap(base_, static_cast<std::size_t>(size_));
  close(file_);
}

bool SharedMemory::seal() { return fcntl(file_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0; }

void* SharedMemory::allocate(int64_t bytes, const std::string& name, const SeenPart& seen) {
  const int64_t visible = bytes - seen.before - seen.behind;
  const int64_t part = (visible + seen.alignment - 1) / seen.alignment * seen.alignment;
  const int64_t at_border = seen.before + (seen.at_page_begin ? 0 : part);  // begin or end of the part
  const int64_t shift = pages(at_border) - at_border;
  const int64_t size = pages(shift + std::max<int64_t>(bytes, 1));
  const auto begin = free_.take(size);
  if (!begin) return nullptr;
  const Block& block = used_[*begin] = {size, name, *begin + shift + seen.before, visible, seen.row_bytes};
  if (visible > 0) changes_.push_back(seen_pages(block));
  if (size >= kLarge) kept_ -= std::min(kept_, size);
  return static_cast<char*>(base_) + *begin + shift;
}

SharedMemory::Change SharedMemory::seen_pages(const Block& block) {
  const int64_t begin = block.at / kPage * kPage;
  return {begin, pages(block.at + block.seen) - begin, true};
}

bool SharedMemory::release(void* p) noexcept {
  const int64_t begin = (static_cast<char*>(p) - static_cast<char*>(base_)) / kPage * kPage;
  const auto found = used_.find(begin);
  if (found == used_.end()) return false;
  const int64_t bytes = found->second.bytes;
  if (found->second.seen > 0) {
    changes_.push_back(seen_pages(found->second));
    changes_.back().seen = false;
  }
  // A sealed file has no holes made into it.
  if (bytes >= kLarge && fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes) != 0)
    kept_ += bytes;
  free_.give(begin, bytes);
  used_.erase(found);
  if (used_.empty() && kept_ > 0 && ftruncate(file_, 0) == 0 && ftruncate(file_, size_) == 0) kept_ = 0;
  return true;
}

SharedMemory::Place SharedMemory::place_of(const void* p) const {
  const int64_t file_at = static_cast<const char*>(p) - static_cast<const char*>(base_);
  auto next = used_.upper_bound(file_at);
  if (file_at < 0 || file_at >= size_ || next == used_.begin()) return {"", false};
  const Block& block = std::prev(next)->second;
  const int64_t at = file_at - block.at, row = block.row_bytes;
  if (at >= block.seen + std::max(kNear, block.seen)) return {"an address far from all tensors", false};
  if (at < 0)
    return {fmt::format("{} byte{} before the start of {}", -at, at < -1 ? "s" : "", block.name), false};
  const bool inside = at < block.seen;
  std::string words = fmt::format("byte {} of ", row > 0 ? at % row : at);
  if (row > 0) words += fmt::format("row {} of ", at / row);
  words += block.name;
  if (!inside) {
    words += row > 0 ? fmt::format(" (it has {} rows)", block.seen / row)
                     : fmt::format(" (it has {} bytes)", block.seen);
  }
  return {words, inside};
}

void SharedMemory::protect(bool on, Access access) const {
  apply({0, size_, !on}, base_, Access::kWrites);
  for (const auto& [begin, block] : used_) {
    if (on && block.seen > 0) apply(seen_pages(block), base_, access);
  }
}

bool SharedMemory::map(int file, void* base, int64_t size, Access access) {
  if (mapped(file, base, size, protection_of(access)) == nullptr) return false;
  apply({0, size, false}, base, access);
  return true;
}

void SharedMemory::apply(const Change& change, void* base, Access access) {
  mprotect(static_cast<char*>(base) + change.begin, static_cast<std::size_t>(change.bytes),
           change.seen ? protection_of(access) : PROT_NONE);
}

}  // namespace attnbench
