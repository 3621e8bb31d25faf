// The custom mask over a row of scores.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/common/mask.h"
#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

/// s[j] := -inf for the columns of [begin, end) that the custom mask hides from packed row `row` of the task. Column 0
/// is key `first_key`; all columns are keys that the other masks show. Not inlined, for the same reason as add_alibi.
__attribute__((noinline)) inline void hide_keys(const AttentionParams& p, const Task& task, int32_t row,
                                                int32_t first_key, float* s, int begin, int end) {
  const int32_t token = (task.row_begin + row) / (p.num_heads_q / p.num_heads_kv);
  for (int j = begin; j < end; ++j) {
    if (!mask_bit(p, task.seq, token, first_key + j, task.range.k_len)) {
      s[j] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace attnbench::cpu
