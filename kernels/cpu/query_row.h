// The channels of a query as a launch uses them.
#pragma once

#include "kernels/common/addressing.h"
#include "kernels/common/rotary.h"
#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

/// Writes head_dim channels of query `token` of the task's sequence, query head `head`: as stored, or turned
/// to the query's position and rounded to its type again.
template <class Q>
inline void load_query(const AttentionParams& p, const Task& task, int32_t token, int32_t head, float* out) {
  const auto* q =
      static_cast<const typename Q::Storage*>(p.q) + q_offset(p, int64_t{task.range.q_begin} + token, head);
  if (!(p.features & kRotary)) {
    for (int32_t c = 0; c < p.head_dim; ++c) out[c] = Q::to_float(q[c]);
    return;
  }
  const int64_t position = int64_t{token} + task.range.k_len - task.range.q_len;
  const auto load = [&](int32_t c) { return Q::to_float(q[c]); };
  for (int32_t c = 0; c < p.head_dim; ++c) out[c] = round_to(p.dtype_q, rotated(p.rotary, position, c, load));
}

}  // namespace attnbench::cpu
