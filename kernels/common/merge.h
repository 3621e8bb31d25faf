// What kernels of merge_states read in the same way: which states a row has, and which of them are empty.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// States first .. first + count - 1 along stride_state. `first` is 0 without kRaggedStates.
struct RowStates {
  int64_t first;
  int32_t count;
};
ATTNBENCH_HD inline RowStates states_of_row(const MergeStatesParams& p, int64_t row) {
  if (!(p.features & kRaggedStates)) return {0, p.num_states};
  return {p.state_indptr[row], p.state_indptr[row + 1] - p.state_indptr[row]};
}

/// Whether a state with this LSE has seen no key. False for NaN.
ATTNBENCH_HD inline bool is_empty_state(const MergeStatesParams& p, float lse) {
  return lse == -INFINITY || ((p.features & kInfLse) != 0 && lse == INFINITY);
}

/// Element offset in `out_lse` of row `row` and head `head`.
ATTNBENCH_HD inline int64_t out_lse_offset(const MergeStatesParams& p, int64_t row, int32_t head) {
  return p.features & kLseTokenMajor ? row * p.out_lse_stride_token + head
                                     : head * p.out_lse_stride_head + row;
}

}  // namespace attnbench
