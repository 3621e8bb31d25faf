// Memory that two processes see at the same addresses: a judge owns it, and the process in which a kernel runs maps
// it. So the pointers of a launch are valid in both.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace attnbench {

/// What a kernel may do to memory.
enum class Access {
  kNone,   ///< it does not see it
  kReads,  ///< a write ends its process
  kWrites,
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

  /// Aligned to 256 bytes; large blocks to pages. `name`: for errors. Null: it is full.
  void* allocate(int64_t bytes, const std::string& name);
  /// Gives the pages of a large block back to the system; if it is sealed, when no block is left. Returns false if the
  /// block is not of this memory.
  bool release(void* p) noexcept;

  int64_t kept() const { return kept_; }  ///< bytes of free blocks that have pages
  /// The name of the block that has this address, or lies before it; empty if it is not of this memory.
  std::string name_at(const void* p) const;

  int file() const { return file_; }
  void* base() const { return base_; }
  int64_t size() const { return size_; }

  /// In another process: maps the file at `base`. Returns false if that is not possible.
  static bool map(int file, void* base, int64_t size, Access access);

 private:
  int file_ = -1;
  void* base_ = nullptr;
  int64_t size_ = 0;
  std::map<int64_t, int64_t> free_;  ///< offset -> bytes
  struct Block {
    int64_t bytes;
    std::string name;
  };
  std::map<int64_t, Block> used_;
  int64_t kept_ = 0;
};

/// The memory of a judge that a runner maps.
struct KernelMemory {
  explicit KernelMemory(int64_t bytes) : inputs(bytes), outputs(bytes) {}
  SharedMemory& of(Access access) { return access == Access::kReads ? inputs : outputs; }

  SharedMemory inputs;   ///< mapped for reading
  SharedMemory outputs;  ///< outputs, caches that a launch writes, workspaces
};

}  // namespace attnbench
