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
  int32_t next;  ///< first key, or entry of a list, of the next tile
  int64_t k[kCapacity];
  int64_t v[kCapacity];
  bool listed;
  int32_t entries[kCapacity];  ///< of a list

  /// A function that returns the offset of row `j` of the tile for KV head 0 in a tensor with the strides that it is
  /// given.
  auto locator(const AttentionParams& p, int32_t seq, int j) const {
    return [&p, seq, is_entry = listed, row = listed ? entries[j] : key + j](int64_t stride_block,
                                                                             int64_t stride_token) {
      return is_entry ? listed_row_offset(p, row, stride_block, stride_token)
                      : kv_row_offset(p, seq, row, stride_block, stride_token);
    };
  }

  /// Locates rows key .. key + n - 1 with n <= kCapacity, all below the sequence's k_len. Rows of a block are
  /// one stride apart, so the address rule and its divisions run once per block.
  void locate(const AttentionParams& p, int32_t seq, int32_t first_key, int count) {
    key = first_key;
    n = count;
    listed = false;
    next = first_key + count;
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

  /// The same for rows that a list names in its entries [first, end); -1 names none. Stops after kCapacity rows.
  void locate_listed(const AttentionParams& p, const int32_t* list, int32_t first, int32_t end) {
    key = 0;
    n = 0;
    listed = true;
    for (next = first; next < end && n < kCapacity; ++next) {
      if (list[next] < 0) continue;
      entries[n] = list[next];
      k[n] = listed_row_offset(p, list[next], p.k_stride_block, p.k_stride_token);
      v[n++] = listed_row_offset(p, list[next], p.v_stride_block, p.v_stride_token);
    }
  }
};

}  // namespace attnbench::cpu
