// A copy of a tensor on the host. Its holes have addresses and no memory, as in the tensor itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "harness/values/fill.h"

namespace attnbench {

/// Copies of one share their memory.
class HostBytes {
 public:
  HostBytes() = default;
  /// All bytes beside the holes are `byte`. `holes`: in memory that begins at `base`. Throws std::bad_alloc.
  HostBytes(int64_t bytes, std::span<const Hole> holes, const void* base, unsigned char byte);

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  unsigned char* data() const { return data_.get(); }
  unsigned char* begin() const { return data(); }
  unsigned char& operator[](std::size_t i) const { return data_.get()[i]; }
  std::span<const Hole> holes() const { return holes_; }
  bool in_hole(int64_t byte) const;
  /// The same size and holes, all bytes beside these 0xff.
  HostBytes blank() const { return {size_, holes_, data(), 0xff}; }
  bool operator==(const HostBytes& o) const;

 private:
  std::vector<std::pair<int64_t, int64_t>> parts() const;  ///< begin and size of what lies between the holes
  int64_t size_ = 0;
  std::vector<Hole> holes_;
  std::shared_ptr<unsigned char> data_;
};

}  // namespace attnbench
