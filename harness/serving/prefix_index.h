// Full blocks by the hash of their contents, and the order in which those without an owner are evicted.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

/// At most one block for a hash. All memory is taken at the start: lists run through arrays indexed by block.
class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t num_blocks);

  /// The block with this hash, or -1.
  int32_t find(uint64_t hash) const;
  bool has(int32_t block) const { return entries_[static_cast<std::size_t>(block)].in_index; }
  /// `block` must not be in the index, nor another block with this hash.
  void insert(int32_t block, uint64_t hash);

  /// Blocks of the index without an owner.
  int32_t idle() const { return idle_; }
  /// A block of the index lost its last owner: it is the last one to be evicted.
  void set_idle(int32_t block);
  /// An idle block has an owner again.
  void set_used(int32_t block);
  /// Removes the block that has been idle longest and returns it. idle() must not be 0.
  int32_t evict();

 private:
  struct Entry {
    uint64_t hash = 0;
    int32_t next_in_bucket = -1;
    int32_t older = 0, younger = 0;  // neighbours among the idle blocks
    bool in_index = false;
  };
  std::size_t bucket(uint64_t hash) const { return (hash * 0x9e3779b97f4a7c15ull) >> shift_; }

  std::vector<Entry> entries_;    // one for each block; the last one stands before and behind all idle blocks
  std::vector<int32_t> buckets_;  // the first block of each, or -1
  int shift_;
  int32_t idle_ = 0;
};

}  // namespace attnbench
