// How the copy engine counts rows of K and V, for host and device.
#pragma once

#include <cstdint>

namespace attnbench::hopper {

/// Lengths and windows stay below this, so that sums of two fit int32 and rows fit a row-window map.
inline constexpr int32_t kFar = 1 << 29;

/// Where rows of K or of V lie, in units of a row (token stride) and of a chunk (tensor_map.h).
struct KvRows {
  int32_t block_rows;   ///< rows from one block of the pool, or row of the cache, to the next; packed: 0
  int32_t head_chunks;  ///< chunks from one head to the next
};

}  // namespace attnbench::hopper
