// ALiBi over a row of scores.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "kernels/common/score.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// s[begin, end) := scale * s + bias * log2(e), for packed row `row` of the task and its KV head `head`.
/// Columns count from key `first_key`; begin and end are multiples of kLanes. Not inlined, so that the loops
/// of rows without ALiBi keep their registers.
__attribute__((noinline)) inline void add_alibi(const AttentionParams& p, const Task& task, int32_t head,
                                                int32_t row, int32_t first_key, float scale, float* s,
                                                int begin, int end) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  const int32_t packed_row = task.row_begin + row;
  const float slope = alibi_slope(p, task.seq, head * group + packed_row % group) * kLog2E;
  // The column on the row's diagonal. It may be outside the tile.
  const int32_t diagonal = packed_row / group + task.range.k_len - task.range.q_len - first_key;
  const auto add = [&](auto sqrt) {
    for (int j = begin; j < end; j += kLanes) {
      float bias[kLanes];
      for (int i = 0; i < kLanes; ++i) bias[i] = alibi_bias(slope, std::abs(diagonal - (j + i)), sqrt());
      store(s + j, load(s + j) * scale + load(bias));
    }
  };
  if (p.alibi_sqrt) {
    add([] { return true; });
  } else {
    add([] { return false; });
  }
}

}  // namespace attnbench::cpu
