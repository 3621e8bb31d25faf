// Device memory with guard zones before and after it. They show writes outside of the buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/device/device.h"

namespace attnbench {

class GuardedBuffer {
 public:
  /// A row of O of 64 heads of 128 channels in 16 bits: a write that is one row too far stays in it.
  static constexpr int64_t kGuardBytes = 16 * 1024;

  GuardedBuffer() = default;
  /// Allocates `bytes` (0 is legal) and fills the guards. Throws OutOfMemory.
  /// `access`: what kernels may do to it. `seen`: the part that they see.
  GuardedBuffer(Device& device, std::string name, int64_t bytes, Access access = Access::kNone,
                const SeenPart& seen = {});
  ~GuardedBuffer() { reset(); }
  GuardedBuffer(GuardedBuffer&& o) noexcept { *this = std::move(o); }
  GuardedBuffer& operator=(GuardedBuffer&& o) noexcept;

  /// A buffer that holds a copy of host data.
  template <class T>
  static GuardedBuffer of(Device& device, std::string name, const std::vector<T>& host,
                          Access access = Access::kNone) {
    GuardedBuffer b(device, std::move(name), static_cast<int64_t>(host.size() * sizeof(T)), access);
    if (!host.empty()) device.upload(b.data(), host.data(), b.bytes());
    return b;
  }

  void* data() const { return base_ ? static_cast<char*>(base_) + kGuardBytes : nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }
  int64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

  /// Where a guard was overwritten, in words; nullopt if both are intact.
  std::optional<std::string> damage() const;

 private:
  void reset();
  Device* device_ = nullptr;
  std::string name_;
  void* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace attnbench
