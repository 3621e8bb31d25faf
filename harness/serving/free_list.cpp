#include "harness/serving/free_list.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace attnbench {

FreeList::FreeList(int32_t num_blocks, FreeOrder order)
    : order_(order), ids_(static_cast<std::size_t>(num_blocks)), size_(num_blocks) {
  std::iota(ids_.begin(), ids_.end(), 0);  // also a heap
  if (order == FreeOrder::kLifo) std::ranges::reverse(ids_);
}

void FreeList::push(int32_t block) {
  auto at = static_cast<std::size_t>(size_);
  if (order_ == FreeOrder::kFifo) at = (at + static_cast<std::size_t>(first_)) % ids_.size();
  ids_[at] = block;
  ++size_;
  if (order_ == FreeOrder::kLowest) std::push_heap(ids_.begin(), ids_.begin() + size_, std::greater<>());
}

int32_t FreeList::pop() {
  if (order_ == FreeOrder::kLowest) std::pop_heap(ids_.begin(), ids_.begin() + size_, std::greater<>());
  --size_;
  if (order_ != FreeOrder::kFifo) return ids_[static_cast<std::size_t>(size_)];
  const int32_t block = ids_[static_cast<std::size_t>(first_)];
  first_ = static_cast<std::size_t>(first_) + 1 == ids_.size() ? 0 : first_ + 1;
  return block;
}

}  // namespace attnbench
