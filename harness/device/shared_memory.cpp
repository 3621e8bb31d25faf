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
#include <optional>

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
/// Before and behind a block with holes: an offset of -2^31 elements still leads to no other block.
constexpr int64_t kApart = int64_t{1} << 33;

int protection_of(Access access) { return access == Access::kWrites ? PROT_READ | PROT_WRITE : PROT_READ; }

int64_t pages(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// What of the holes whole pages are, as offsets in the file.
std::vector<ByteRange> whole_pages(const std::vector<ByteRange>& holes, int64_t at) {
  std::vector<ByteRange> whole;
  for (const ByteRange& hole : holes) {
    const int64_t begin = pages(at + hole.begin), end = (at + hole.end) / kPage * kPage;
    if (begin < end) whole.push_back({begin, end});
  }
  return whole;
}

int64_t bytes_of(std::span<const ByteRange> ranges) {
  int64_t bytes = 0;
  for (const ByteRange& r : ranges) bytes += r.end - r.begin;
  return bytes;
}

bool contains(std::span<const ByteRange> ranges, int64_t at) {
  const auto next = std::ranges::upper_bound(ranges, at, {}, &ByteRange::begin);
  return next != ranges.begin() && at < std::prev(next)->end;
}

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
  const int64_t apart = seen.holes.empty() ? 0 : kApart;
  const int64_t shift = apart + pages(at_border) - at_border;
  const int64_t size = pages(shift + std::max<int64_t>(bytes, 1)) + apart;
  const auto begin = free_.take(size);
  if (!begin) return nullptr;
  Block& block = used_[*begin] = {size, name, *begin + shift + seen.before, visible, seen, apart};
  block.part.holes = whole_pages(seen.holes, block.at);
  for (const Change& c : seen_pages(block)) changes_.push_back(c);
  if (size >= kLarge) kept_ -= std::min(kept_, size - 2 * apart - bytes_of(block.part.holes));
  return static_cast<char*>(base_) + *begin + shift;
}

std::vector<SharedMemory::Change> SharedMemory::seen_pages(const Block& block) {
  std::vector<Change> changes;
  if (block.seen <= 0) return changes;
  int64_t begin = block.at / kPage * kPage;
  for (const ByteRange& hole : block.part.holes) {
    if (begin < hole.begin) changes.push_back({begin, hole.begin - begin, true});
    begin = hole.end;
  }
  if (const int64_t end = pages(block.at + block.seen); begin < end)
    changes.push_back({begin, end - begin, true});
  return changes;
}

std::vector<std::span<const char>> SharedMemory::seen_memory() const {
  std::vector<std::span<const char>> parts;
  for (const auto& [first, block] : used_) {
    for (const Change& c : seen_pages(block))
      parts.emplace_back(static_cast<const char*>(base_) + c.begin, static_cast<std::size_t>(c.bytes));
  }
  return parts;
}

std::span<const ByteRange> SharedMemory::holes_of(const void* p) const {
  const int64_t file_at = static_cast<const char*>(p) - static_cast<const char*>(base_);
  const auto next = used_.upper_bound(file_at);
  if (file_at < 0 || file_at >= size_ || next == used_.begin()) return {};
  return std::prev(next)->second.part.holes;
}

bool SharedMemory::release(void* p) noexcept {
  const int64_t p_begin = (static_cast<char*>(p) - static_cast<char*>(base_)) / kPage * kPage;
  auto found = used_.upper_bound(p_begin);
  if (p_begin < 0 || p_begin >= size_ || found == used_.begin()) return false;
  const auto& [begin, block] = *--found;
  const int64_t apart = block.apart, bytes = block.bytes;
  if (begin + apart != p_begin) return false;
  const int64_t first = block.at / kPage * kPage;
  if (block.seen > 0) changes_.push_back({first, pages(block.at + block.seen) - first, false});
  // A sealed file has no holes made into it.
  if (bytes >= kLarge && fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes) != 0)
    kept_ += bytes - 2 * apart - bytes_of(block.part.holes);
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
  const int64_t at = file_at - block.at;
  if (at >= block.seen + std::max(kNear, block.seen)) return {"an address far from all tensors", false};
  const bool inside = at >= 0 && at < block.seen && !contains(block.part.holes, file_at);
  return {words_of(block, at) + (inside ? "" : wrapped(block, at)), inside};
}

std::string SharedMemory::words_of(const Block& block, int64_t at) {
  if (at < 0) return fmt::format("{} byte{} before the start of {}", -at, at < -1 ? "s" : "", block.name);
  const int64_t row = block.part.row_bytes;
  std::string words = fmt::format("byte {} of ", row > 0 ? at % row : at);
  if (row > 0) words += fmt::format("row {} of ", at / row);
  words += block.name;
  if (at >= block.seen) {
    words += row > 0 ? fmt::format(" (it has {} rows)", block.seen / row)
                     : fmt::format(" (it has {} bytes)", block.seen);
  } else if (contains(block.part.holes, block.at + at)) {
    words += ", which is no row of the case";
  }
  return words;
}

std::string SharedMemory::wrapped(const Block& block, int64_t at) {
  const SeenPart& part = block.part;
  const int64_t unit = part.block_bytes > 0 ? part.block_bytes : part.row_bytes;
  if (part.holes.empty() || unit == 0) return "";
  const char* const noun = part.block_bytes > 0 ? "block" : "row";
  const std::string here = at < 0 ? "before it" : fmt::format("to {} {}", noun, at / unit);
  const auto source = [&](int64_t step) -> std::optional<int64_t> {  // a row of the case, whole steps behind
    for (int64_t to = at + step; to < block.seen; to += step) {
      if (to >= 0 && !contains(part.holes, block.at + to)) return to;
    }
    return std::nullopt;
  };
  const auto by_id = source(unit << 16);
  for (const int64_t size : {part.element_bytes, int64_t{1}}) {
    if (const auto to = source(size << 32)) {
      return fmt::format(": {} {} x stride {}{} wraps at 2^32{}, and leads {}", noun, *to / unit, unit / size,
                         size > 1 ? "" : " bytes", by_id == to ? " (or its id at 2^16)" : "", here);
    }
  }
  return by_id ? fmt::format(": {} {} wraps at 2^16, and leads {}", noun, *by_id / unit, here) : "";
}

void SharedMemory::protect(bool on, Access access) const {
  apply({0, size_, !on}, base_, Access::kWrites);
  for (const auto& [begin, block] : used_) {
    if (!on) break;
    for (const Change& c : seen_pages(block)) apply(c, base_, access);
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
