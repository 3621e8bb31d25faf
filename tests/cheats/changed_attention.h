// The example's loop over keys, with what three kernels of this folder change in it.
#pragma once

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

inline float same(float x) { return x; }

struct Change {
  float (*rounded)(float) = same;  ///< weights and accumulators after each step
  float v_offset = 0;              ///< added to V and taken off O
  uint32_t first = 0;              ///< the key to begin with, modulo the number of keys
};

inline void attend_changed(const AttentionParams& p, int32_t b, int32_t i, int32_t head,
                           const Change& change) {
  const SeqRange seq = seq_range(p, b);
  const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
  const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
  const auto count = static_cast<uint32_t>(std::max(keys.end - keys.begin, 0));
  const int64_t q = q_offset(p, seq.q_begin + i, head);
  float out[256] = {};
  float sum = 0, max = -INFINITY;
  for (uint32_t n = 0; n < count; ++n) {
    const int32_t j = keys.begin + static_cast<int32_t>((n + change.first) % count);
    const int64_t k = k_row_offset(p, b, j) + kv_head * p.k_stride_head;
    const int64_t v = v_row_offset(p, b, j) + kv_head * p.v_stride_head;
    float dot = 0;
    for (int32_t c = 0; c < p.head_dim; ++c) {
      dot += load_float(p.dtype_q, p.q, q + c) * load_float(p.dtype_k, p.k, k + c);
    }
    const float score = dot * p.softmax_scale, top = std::max(max, score);
    const float kept = std::exp(max - top), weight = change.rounded(std::exp(score - top));
    for (int32_t c = 0; c < p.head_dim; ++c) {
      const float value = load_float(p.dtype_v, p.v, v + c) + change.v_offset;
      out[c] = change.rounded(out[c] * kept + weight * value);
    }
    sum = sum * kept + weight;
    max = top;
  }
  for (int32_t c = 0; c < p.head_dim; ++c) {
    store_float(p.dtype_out, out_row(p, b, i, head), c, sum == 0 ? 0.0f : out[c] / sum - change.v_offset);
  }
  lse_row(p, b, i, head) = lse_of(max, sum);
}

inline void attend_all(const AttentionParams& p, const Change& change) {
  for_rows(p, 0, p.num_heads_q,
           [&](int32_t b, int32_t i, int32_t head) { attend_changed(p, b, i, head, change); });
}

}  // namespace attnbench::cheats
