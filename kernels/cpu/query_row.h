// The channels of a query in the form that a launch uses.
#pragma once

#include "kernels/common/addressing.h"
#include "kernels/common/descale.h"
#include "kernels/common/rotary.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

/// Writes head_dim channels of query `token` of the task's sequence, query head `head`, times the query's
/// descale and `factor`. With kRotary, it first turns them to the query's position and rounds them to
/// dtype_q.
inline void load_query(const AttentionParams& p, const Task& task, int32_t token, int32_t head, float factor,
                       float* out) {
  const int64_t q_row = int64_t{task.range.q_begin} + token;
  factor *= q_descale(p, task.seq, q_row, head);
  const auto read = [&]<class T>() {
    const auto* q = static_cast<const typename T::Storage*>(p.q) + q_offset(p, q_row, head);
    if (!(p.features & kRotary)) {
      for (int32_t c = 0; c < p.head_dim; ++c) out[c] = T::to_float(q[c]) * factor;
      return;
    }
    const int64_t position = query_position(p, task.seq, task.range, token);
    const auto load = [&](int32_t c) { return T::to_float(q[c]); };
    for (int32_t c = 0; c < p.head_dim; ++c) {
      out[c] = round_to(p.dtype_q, rotated(p.rotary, position, c, load)) * factor;
    }
  };
  switch (p.dtype_q) {
    case DType::kBf16:
      return read.template operator()<Bf16>();
    case DType::kFp16:
      return read.template operator()<Fp16>();
    case DType::kE4m3:
      return read.template operator()<E4m3>();
    case DType::kInt8:
      return read.template operator()<Int8>();
    default:
      return read.template operator()<Fp32>();
  }
}

/// Writes head_dim_v channels of the second query (kQv), times `factor`.
inline void load_second_query(const AttentionParams& p, const Task& task, int32_t token, int32_t head,
                              float factor, float* out) {
  const int64_t q_row = int64_t{task.range.q_begin} + token;
  const int64_t at = q_row * p.qv_stride_token + head * p.qv_stride_head;
  for (int32_t c = 0; c < p.head_dim_v; ++c) out[c] = load_float(p.dtype_q, p.qv, at + c) * factor;
}

}  // namespace attnbench::cpu
