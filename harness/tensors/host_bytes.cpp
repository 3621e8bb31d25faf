#include "harness/tensors/host_bytes.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace attnbench {

HostBytes::HostBytes(int64_t bytes, std::span<const Hole> holes, const void* base, unsigned char byte)
    : size_(bytes) {
  if (bytes <= 0) return;
  const auto size = static_cast<std::size_t>(bytes);
  // Private memory counts in full for a worker's limit.
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = {static_cast<unsigned char*>(p), [size](unsigned char* m) { munmap(m, size); }};
  const auto* here = static_cast<const char*>(p);
  for (const Hole& h : holes) {
    const auto* from = static_cast<const char*>(base);
    holes_.push_back({here + (h.begin - from), here + (h.end - from)});
  }
  for (const auto& [begin, n] : parts()) std::memset(data() + begin, byte, static_cast<std::size_t>(n));
}

std::vector<std::pair<int64_t, int64_t>> HostBytes::parts() const {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for_each_part(data(), size_, holes_, [&](const char* at, int64_t n) {
    parts.emplace_back(at - reinterpret_cast<const char*>(data()), n);
  });
  return parts;
}

bool HostBytes::in_hole(int64_t byte) const {
  const char* at = reinterpret_cast<const char*>(data()) + byte;
  const auto next = std::ranges::upper_bound(holes_, at, {}, &Hole::begin);
  return next != holes_.begin() && at < std::prev(next)->end;
}

bool HostBytes::operator==(const HostBytes& o) const {
  if (size_ != o.size_) return false;
  for (const auto& [begin, n] : parts()) {
    if (std::memcmp(data() + begin, o.data() + begin, static_cast<std::size_t>(n)) != 0) return false;
  }
  return true;
}

}  // namespace attnbench
