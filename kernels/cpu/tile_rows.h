// Where the keys of a tile are.
#pragma once

#include <cstdint>

#include "kernels/common/addressing.h"

namespace attnbench::cpu {

/// Element offsets of `n` consecutive rows of K and V of one sequence for KV head 0, from key `key` on.
template <int kCapacity>
struct TileRows {
  int32_t key;
  int n;
  int64_t k[kCapacity];
  int64_t v[kCapacity];

  /// Locates rows key .. key + n - 1 with n <= kCapacity, all below the sequence's k_len. Rows of a block are
  /// one stride apart, so the address rule and its divisions run once per block.
  void locate(const AttentionParams& p, int32_t seq, int32_t first_key, int count) {
    key = first_key;
    n = count;
    const bool paged = (p.features & kPagedKv) != 0;
    for (int j = 0; j < n;) {
      const int64_t k_row = k_row_offset(p, seq, key + j);
      const int64_t v_row = v_row_offset(p, seq, key + j);
      const int left_in_block = paged ? p.block_size - padded_row(p, seq, key + j) % p.block_size : n;
      const int run = left_in_block < n - j ? left_in_block : n - j;
      for (int i = 0; i < run; ++i) {
        k[j + i] = k_row + i * p.k_stride_token;
        v[j + i] = v_row + i * p.v_stride_token;
      }
      j += run;
    }
  }
};

}  // namespace attnbench::cpu
