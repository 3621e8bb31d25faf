#include "harness/tensors/guarded_buffer.h"

#include <fmt/format.h>

namespace attnbench {
namespace {
constexpr unsigned char kGuardByte = 0xA5;

SeenPart behind_guard(SeenPart seen) {
  seen.before += GuardedBuffer::kGuardBytes;
  seen.behind += GuardedBuffer::kGuardBytes;
  return seen;
}
}  // namespace

GuardedBuffer::GuardedBuffer(Device& device, std::string name, int64_t bytes, Access access,
                             const SeenPart& seen)
    : device_(&device),
      name_(std::move(name)),
      base_(device.allocate_for(access, bytes + 2 * kGuardBytes, name_, behind_guard(seen))),
      bytes_(bytes) {
  device.set_bytes(base_, kGuardByte, kGuardBytes);
  device.set_bytes(static_cast<char*>(base_) + kGuardBytes + bytes, kGuardByte, kGuardBytes);
}

GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&& o) noexcept {
  if (this != &o) {
    reset();
    device_ = o.device_;
    name_ = std::move(o.name_);
    base_ = std::exchange(o.base_, nullptr);
    bytes_ = o.bytes_;
  }
  return *this;
}

void GuardedBuffer::reset() {
  if (base_) device_->release(base_);
  base_ = nullptr;
}

std::optional<std::string> GuardedBuffer::damage() const {
  if (!base_) return std::nullopt;
  unsigned char guard[kGuardBytes];
  const char* zones[2] = {static_cast<const char*>(base_),
                          static_cast<const char*>(base_) + kGuardBytes + bytes_};
  for (int zone = 0; zone < 2; ++zone) {
    device_->download(guard, zones[zone], kGuardBytes);
    int64_t count = 0;
    int64_t nearest = -1;
    for (int64_t i = 0; i < kGuardBytes; ++i) {
      if (guard[i] == kGuardByte) continue;
      ++count;
      if (nearest < 0 || zone == 0) nearest = i;
    }
    if (count == 0) continue;
    const int64_t gap = zone == 0 ? kGuardBytes - nearest - 1 : nearest;
    const std::string written = count == 1 ? "1 byte written" : fmt::format("{} bytes written", count);
    const std::string distance = gap == 0 ? "right" : gap == 1 ? "1 byte" : fmt::format("{} bytes", gap);
    return zone == 0 ? fmt::format("{} before the start of {}, ending {} before it", written, name_, distance)
                     : fmt::format("{} past the end of {}, starting {} after it", written, name_, distance);
  }
  return std::nullopt;
}

}  // namespace attnbench
