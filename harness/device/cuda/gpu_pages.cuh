// The judge's side of device/gpu_pages.h.
#pragma once

#include <cuda.h>

#include <map>
#include <vector>

#include "harness/device/free_ranges.h"
#include "harness/device/gpu_pages.h"
#include "harness/values/fill.h"

namespace attnbench {

/// Whether a process can share memory of this GPU with another one, which has a context of its own.
bool can_share_gpu(int ordinal);

/// Blocks in one range of addresses of the GPU in use.
class OwnedGpuPages {
 public:
  explicit OwnedGpuPages(int ordinal);
  ~OwnedGpuPages();
  OwnedGpuPages(const OwnedGpuPages&) = delete;
  OwnedGpuPages& operator=(const OwnedGpuPages&) = delete;

  /// `seen`: the part that the kernel's process maps. Its large holes take no more memory than kFiller. Throws
  /// OutOfMemory.
  void* allocate(Access access, int64_t bytes, const SeenPart& seen);
  /// Returns false if the block is not of this memory.
  bool release(void* p) noexcept;
  /// The holes of the block that an address lies in.
  std::vector<Hole> holes_of(const void* p) const;
  /// What the kernel's process must map, or not any more, since the last call.
  std::vector<GpuPages> take_changes() { return std::exchange(changes_, {}); }
  int64_t spare_bytes() const { return spare_bytes_; }
  void free_spare() noexcept;

 private:
  /// Pages before the seen ones, seen, behind.
  struct Shape {
    int64_t before, seen, behind;
    Access access;
    std::vector<ByteRange> holes;  ///< of the seen ones, from the block's first page on
    auto operator<=>(const Shape&) const = default;
    int64_t bytes() const { return before + seen + behind; }
    int64_t in_memory() const;
    int64_t apart() const;  ///< bytes before and behind it that nothing uses
  };
  struct Block {
    Shape shape;
    std::vector<CUmemGenericAllocationHandle> memory;  ///< of its parts
  };
  struct Part {
    int64_t at, bytes, unit;  ///< GpuPages
    Access access;
  };
  static std::vector<Part> parts(int64_t at, const Shape& shape);
  Block make(int64_t at, const Shape& shape);
  void give(int64_t at, const Shape& shape) {
    free_.give(at - shape.apart(), shape.bytes() + 2 * shape.apart());
  }
  /// The block that begins at an address or before it.
  std::map<int64_t, Block>::const_iterator block_of(const void* p) const;
  void map(Block& block, const Part& part);
  void unmap(int64_t at, const Block& block) noexcept;

  int ordinal_;
  FreeRanges free_;
  std::map<int64_t, Block> used_;  ///< by their place
  std::multimap<Shape, std::pair<int64_t, Block>> spare_;
  int64_t spare_bytes_ = 0;
  std::vector<GpuPages> changes_;
};

}  // namespace attnbench
