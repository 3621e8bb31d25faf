// The end of a row: its state goes to a partial slot, or to the outputs as O and LSE.
#pragma once

#include <cstring>

#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/common/descale.h"
#include "kernels/common/score.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/softmax.h"

namespace attnbench::cpu {

/// Writes O and LSE of packed row `row` of the task and its KV head `head`, from the row's state over all its
/// keys. Only this function applies the sink and V's descale. A row that saw no key has l = 0.
inline void write_row(const AttentionParams& p, const Task& task, int32_t head, int32_t row, const float* o,
                      float m, float l) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  const int32_t packed_row = task.row_begin + row;
  const int64_t q_row = int64_t{task.range.q_begin} + packed_row / group;
  const int32_t q_head = head * group + packed_row % group;
  const RowEnd<double> end =
      end_row(m * 0.69314718055994530942, static_cast<double>(l), static_cast<double>(sink_of(p, q_head)));
  const float divisor = static_cast<float>(end.divisor);
  alignas(64) float out[kMaxHeadDimV];
  if (l == 0.0f) {
    std::memset(out, 0, static_cast<std::size_t>(p.head_dim_v) * sizeof *out);
  } else {
    for (int d = 0; d < p.head_dim_v; ++d) out[d] = o[d] / divisor * v_descale(p, task.seq, head, d);
    if (p.features & kE4m3Out) {
      for (int d = 0; d < p.head_dim_v; ++d) out[d] /= out_divisor(p);
    }
  }
  store_row(p.dtype_out, p.out, out_offset(p, q_row, q_head), out, p.head_dim_v);
  p.lse[any_lse_offset(p, q_row, q_head)] = static_cast<float>(end.lse * lse_unit<double>(p.features));
}

/// Ends one row of a task. `o` holds head_dim_v accumulators in channel order; `partials` the launch's slots.
inline void finish_row(const AttentionParams& p, const Task& task, int32_t head, int32_t row, const float* o,
                       float m, float l, float* partials) {
  if (task.splits == 1) {
    write_row(p, task, head, row, o, m, l);
    return;
  }
  float* slot = partials + partial_offset(p, task, head, task.split, row);
  std::memcpy(slot, o, static_cast<std::size_t>(p.head_dim_v) * sizeof *o);
  slot[p.head_dim_v] = m;
  slot[p.head_dim_v + 1] = l;
}

}  // namespace attnbench::cpu
