#include "harness/serving/prefix_index.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace attnbench {

PrefixIndex::PrefixIndex(int32_t num_blocks) : entries_(static_cast<std::size_t>(num_blocks) + 1) {
  const auto num_buckets = std::bit_ceil(std::max(entries_.size(), std::size_t{2}));
  buckets_.assign(num_buckets, -1);
  shift_ = 64 - std::countr_zero(num_buckets);
  entries_.back().older = entries_.back().younger = num_blocks;
}

int32_t PrefixIndex::find(uint64_t hash) const {
  int32_t block = buckets_[bucket(hash)];
  while (block >= 0 && entries_[static_cast<std::size_t>(block)].hash != hash)
    block = entries_[static_cast<std::size_t>(block)].next_in_bucket;
  return block;
}

void PrefixIndex::insert(int32_t block, uint64_t hash) {
  Entry& e = entries_[static_cast<std::size_t>(block)];
  int32_t& head = buckets_[bucket(hash)];
  e.hash = hash;
  e.next_in_bucket = head;
  e.in_index = true;
  head = block;
}

void PrefixIndex::set_idle(int32_t block) {
  Entry& e = entries_[static_cast<std::size_t>(block)];
  Entry& end = entries_.back();
  e.older = end.older;
  e.younger = static_cast<int32_t>(entries_.size()) - 1;
  entries_[static_cast<std::size_t>(e.older)].younger = block;
  end.older = block;
  ++idle_;
}

void PrefixIndex::set_used(int32_t block) {
  const Entry& e = entries_[static_cast<std::size_t>(block)];
  entries_[static_cast<std::size_t>(e.older)].younger = e.younger;
  entries_[static_cast<std::size_t>(e.younger)].older = e.older;
  --idle_;
}

int32_t PrefixIndex::evict() {
  if (idle_ == 0) throw std::logic_error("a block is evicted where none is idle");
  const int32_t block = entries_.back().younger;
  set_used(block);
  Entry& e = entries_[static_cast<std::size_t>(block)];
  int32_t* link = &buckets_[bucket(e.hash)];
  while (*link != block) link = &entries_[static_cast<std::size_t>(*link)].next_in_bucket;
  *link = e.next_in_bucket;
  e.in_index = false;
  return block;
}

}  // namespace attnbench
