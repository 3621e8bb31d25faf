// Aligned memory that grows and is kept, so that a thread allocates nothing in its next launches.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace attnbench::cpu {

class Scratch {
 public:
  static constexpr std::size_t kAlign = 64;

  /// Room for `bytes` bytes, contents undefined. Returns null if the allocation fails.
  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlign}, std::nothrow)));
      if (memory_ != nullptr) size_ = bytes;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlign}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

/// Hands out aligned pieces of one reservation. Run it once without memory to measure, then with memory to
/// place.
class Carver {
 public:
  explicit Carver(void* memory) : base_(static_cast<std::byte*>(memory)) {}

  template <class T>
  T* take(std::size_t count) {
    T* piece = base_ != nullptr ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (count * sizeof(T) + Scratch::kAlign - 1) / Scratch::kAlign * Scratch::kAlign;
    return piece;
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
};

}  // namespace attnbench::cpu
