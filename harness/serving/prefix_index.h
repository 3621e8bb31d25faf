// Full blocks by the hash of their contents, and the order in which those without an owner are evicted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attnbench {

/// At most one block for a hash. All memory is taken at the start: lists run through arrays indexed by block.
class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t num_blocks);

  /// The block with this hash, or -1.
  int32_t find(uint64_t hash) const;
  bool has(int32_t block) const { return entry(block).next_in_bucket != kNotInIndex; }
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

  /// Follows which leading blocks of a prompt are known while blocks come and go. A prompt that waits is looked at
  /// before each step, and a search each time would cost more than all else. One prompt is watched at a time.
  /// `hashes` must stay until the next call of watch() or unwatch().
  void watch(std::span<const uint64_t> hashes);
  void unwatch();
  /// Leading blocks of the watched prompt that are known.
  std::span<const int32_t> watched();
  /// Those of the last watched() that are idle now.
  int32_t watched_idle() const { return watched_idle_; }

 private:
  static constexpr int32_t kNotInIndex = -2, kNotIdle = -1, kNotWatched = -1;
  struct Entry {
    uint64_t hash = 0;
    int32_t next_in_bucket = kNotInIndex;
    int32_t older = kNotIdle, younger = 0;  // neighbours among the idle blocks
    int32_t watched = kNotWatched;          // its place in watched_
  };
  Entry& entry(int32_t block) { return entries_[static_cast<std::size_t>(block)]; }
  const Entry& entry(int32_t block) const { return entries_[static_cast<std::size_t>(block)]; }
  void cut_watched(int32_t place);
  /// Hashes that differ in their last 4 bits share a cache line: those of a mix count the blocks of a prompt.
  std::size_t bucket(uint64_t hash) const {
    return ((hash >> 4) * 0x9e3779b97f4a7c15ull) >> shift_ ^ (hash & 15);
  }

  std::vector<Entry> entries_;    // one for each block; the last one stands before and behind all idle blocks
  std::vector<int32_t> buckets_;  // the first block of each, or -1
  int shift_;
  int32_t idle_ = 0;
  std::span<const uint64_t> watched_hashes_;
  std::vector<int32_t> watched_;  // blocks
  int32_t watched_idle_ = 0;
};

}  // namespace attnbench
