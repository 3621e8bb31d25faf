// The order in which free blocks are taken again. It decides how scattered block tables become.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

/// Which free block is taken next: the one freed last, the one freed first, or the one with the lowest id.
enum class FreeOrder { kLifo, kFifo, kLowest };

/// Ids of free blocks. A new list takes 0, 1, 2, ... in every order.
class FreeList {
 public:
  /// All of 0..num_blocks-1 are free.
  FreeList(int32_t num_blocks, FreeOrder order);

  int32_t size() const { return size_; }
  /// `block` must not be in the list.
  void push(int32_t block);
  /// The list must not be empty.
  int32_t pop();

 private:
  FreeOrder order_;
  std::vector<int32_t> ids_;  // lifo: a stack; fifo: a ring; lowest: a heap with the lowest id first
  int32_t size_ = 0;
  int32_t first_ = 0;  // fifo: where the next block to take stands
};

}  // namespace attnbench
