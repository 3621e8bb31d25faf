// Memory that two processes see at the same addresses: a judge owns it, and the process in which a kernel runs maps
// it. So the pointers of a launch are valid in both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/device/free_ranges.h"

namespace attnbench {

/// What a kernel may do to memory.
enum class Access {
  kNone,   ///< it does not see it
  kLooks,  ///< neither, but on a GPU its process does what is done around a launch with it
  kReads,  ///< a write ends its process
  kWrites,
};

/// Bytes of some memory, counted from a begin that its user names.
struct ByteRange {
  int64_t begin, end;
  auto operator<=>(const ByteRange&) const = default;
};

/// The part of a block that a kernel may touch. It ends, or begins, where a page does, so that the next byte, or the one
/// before, is not there for the kernel.
struct SeenPart {
  int64_t before = 0;                          ///< bytes of the block before it
  int64_t behind = 0;                          ///< and behind it
  int64_t row_bytes = 0;                       ///< for messages; 0: it has no rows
  int64_t block_bytes = 0, element_bytes = 1;  ///< the same; 0: rows lie in no blocks
  int64_t alignment = 1;                       ///< of its first byte, where it ends with a page
  bool at_page_begin = false;
  std::vector<ByteRange>
      holes;  ///< of the visible part, ascending: whole pages in them are not there, either
};

/// A file in memory, and the blocks that are allocated in it. Pages exist once they are touched.
class SharedMemory {
 public:
  /// Maps `bytes` at an address that is free in most processes, or less if a limit (ulimit -v) requires it. Throws
  /// Error.
  explicit SharedMemory(int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// From now on nobody can map it for writing, or write to its file. Returns false if the system has no such seal.
  bool seal();

  /// Blocks have pages of their own. `name`: for errors. Null: it is full.
  void* allocate(int64_t bytes, const std::string& name, const SeenPart& seen = {});
  /// Gives the pages of a large block back to the system; if it is sealed, when no block is left. Returns false if the
  /// block is not of this memory.
  bool release(void* p) noexcept;
  /// The holes of the block that an address lies in, as offsets in the file.
  std::span<const ByteRange> holes_of(const void* p) const;

  /// The pages that a kernel sees.
  std::vector<std::span<const char>> seen_memory() const;

  int64_t kept() const { return kept_; }  ///< bytes of free blocks that have pages
  /// Where an address lies: in the part of a block that a kernel sees, or outside of the nearest one.
  struct Place {
    /// "row 3 of q", "byte 8 of row 300 of k (it has 300 rows)", "an address far from all tensors"; empty: it is not of
    /// this memory
    std::string words;
    bool inside;
  };
  Place place_of(const void* p) const;

  /// Pages that a kernel sees from now on, or not any more.
  struct Change {
    int64_t begin, bytes;  ///< in the file
    bool seen;
  };
  /// What has changed since the last call.
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }
  /// In this process: no pages but those that a kernel sees can be touched, while `on`.
  void protect(bool on, Access access) const;

  int file() const { return file_; }
  void* base() const { return base_; }
  int64_t size() const { return size_; }

  /// In another process: maps the file at `base`; no page can be touched. Returns false if that is not possible.
  static bool map(int file, void* base, int64_t size, Access access);
  /// Lets this process touch some pages of a mapping, or not.
  static void apply(const Change& change, void* base, Access access);

 private:
  int file_ = -1;
  void* base_ = nullptr;
  int64_t size_ = 0;
  FreeRanges free_;
  struct Block {
    int64_t bytes;
    std::string name;
    int64_t at, seen;  ///< the part that a kernel sees: begin in the file, bytes
    SeenPart part;     ///< its holes are whole pages and offsets in the file
    int64_t apart;     ///< bytes before and behind it that nothing uses
  };
  std::map<int64_t, Block> used_;  ///< by their first page
  static std::vector<Change> seen_pages(const Block& block);
  static std::string words_of(const Block& block, int64_t at);
  /// Which product, cut to 32 or 16 bits, leads from a row of the case to there; empty if none does.
  static std::string wrapped(const Block& block, int64_t at);
  std::vector<Change> changes_;
  int64_t kept_ = 0;
};

/// The memory of a judge that a runner maps.
struct KernelMemory {
  /// Tensors with holes take far more addresses than memory.
  static constexpr int64_t kAddresses = int64_t{1} << 40;
  explicit KernelMemory(int64_t bytes)
      : inputs(std::max(bytes, kAddresses)), outputs(std::max(bytes, kAddresses)) {}
  SharedMemory& of(Access access) { return access == Access::kReads ? inputs : outputs; }

  SharedMemory inputs;   ///< mapped for reading
  SharedMemory outputs;  ///< outputs, caches that a launch writes, workspaces
};

}  // namespace attnbench
