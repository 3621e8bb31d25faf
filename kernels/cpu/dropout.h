// Dropout over a row of weights.
#pragma once

#include <cstdint>

#include "kernels/contract/dropout.h"
#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

/// Applies dropout to weights s[begin, end) of packed row `row` of the task and its KV head `head`; column 0
/// is key `first_key`. The results are the factors of V. Not inlined, for the same reason as add_alibi.
__attribute__((noinline)) inline void drop_weights(const AttentionParams& p, const Task& task, int32_t head,
                                                   int32_t row, int32_t first_key, float* s, int begin,
                                                   int end) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  const int32_t packed_row = task.row_begin + row;
  const int64_t token = int64_t{task.range.q_begin} + packed_row / group;
  const int32_t q_head = head * group + packed_row % group;
  const uint32_t threshold = dropout_threshold(p.p_dropout);
  const float scale = dropout_scale(p.p_dropout);
  Philox4 bits{};
  for (int j = begin; j < end; ++j) {
    const int32_t key = first_key + j;
    if (j == begin || key % 4 == 0) {
      bits = dropout_bits(p.dropout_seed, p.dropout_offset, q_head, token, key / 4);
    }
    s[j] = bits.x[key % 4] >= threshold ? s[j] * scale : 0.0f;
  }
}

}  // namespace attnbench::cpu
