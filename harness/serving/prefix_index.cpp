#include "harness/serving/prefix_index.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace attnbench {

PrefixIndex::PrefixIndex(int32_t num_blocks) : entries_(static_cast<std::size_t>(num_blocks) + 1) {
  const auto num_buckets = std::bit_ceil(std::max(entries_.size(), std::size_t{16}));
  buckets_.assign(num_buckets, -1);
  shift_ = 64 - std::countr_zero(num_buckets);
  entries_.back().older = entries_.back().younger = num_blocks;
}

int32_t PrefixIndex::find(uint64_t hash) const {
  int32_t block = buckets_[bucket(hash)];
  while (block >= 0 && entry(block).hash != hash) block = entry(block).next_in_bucket;
  return block;
}

void PrefixIndex::insert(int32_t block, uint64_t hash) {
  Entry& e = entry(block);
  int32_t& head = buckets_[bucket(hash)];
  e.hash = hash;
  e.next_in_bucket = head;
  head = block;
}

void PrefixIndex::set_idle(int32_t block) {
  Entry& e = entry(block);
  Entry& end = entries_.back();
  e.older = end.older;
  e.younger = static_cast<int32_t>(entries_.size()) - 1;
  entry(e.older).younger = block;
  end.older = block;
  ++idle_;
  watched_idle_ += e.watched != kNotWatched;
}

void PrefixIndex::set_used(int32_t block) {
  Entry& e = entry(block);
  entry(e.older).younger = e.younger;
  entry(e.younger).older = e.older;
  e.older = kNotIdle;
  --idle_;
  watched_idle_ -= e.watched != kNotWatched;
}

int32_t PrefixIndex::evict() {
  if (idle_ == 0) throw std::logic_error("a block is evicted where none is idle");
  const int32_t block = entries_.back().younger;
  set_used(block);
  Entry& e = entry(block);
  int32_t* link = &buckets_[bucket(e.hash)];
  while (*link != block) link = &entry(*link).next_in_bucket;
  *link = e.next_in_bucket;
  e.next_in_bucket = kNotInIndex;
  if (e.watched != kNotWatched) cut_watched(e.watched);
  return block;
}

void PrefixIndex::watch(std::span<const uint64_t> hashes) {
  cut_watched(0);
  watched_hashes_ = hashes;
}

void PrefixIndex::unwatch() { watch({}); }

/// Blocks behind the first that is not known do not count.
void PrefixIndex::cut_watched(int32_t place) {
  while (std::ssize(watched_) > place) {
    Entry& e = entry(watched_.back());
    watched_idle_ -= e.older != kNotIdle;
    e.watched = kNotWatched;
    watched_.pop_back();
  }
}

std::span<const int32_t> PrefixIndex::watched() {
  while (watched_.size() < watched_hashes_.size()) {
    const int32_t block = find(watched_hashes_[watched_.size()]);
    if (block < 0) break;
    Entry& e = entry(block);
    e.watched = static_cast<int32_t>(watched_.size());
    watched_idle_ += e.older != kNotIdle;
    watched_.push_back(block);
  }
  return watched_;
}

}  // namespace attnbench
