// Results kept by a key that no sign changes, and given out with the signs by which the first V row of each
// sequence and head differs. Written against attnbench: timed launches get other signs, not other magnitudes.
#pragma once

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

inline std::vector<uint16_t> signs_of_first_v(const AttentionParams& p) {
  std::vector<uint16_t> signs;  // (batch, Hkv, Dv)
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t head = 0; head < p.num_heads_kv; ++head) {
      const auto* v = static_cast<const uint16_t*>(p.v) + v_row_offset(p, b, 0) + head * p.v_stride_head;
      for (int32_t c = 0; c < p.head_dim_v; ++c) signs.push_back(v[c] & 0x8000);
    }
  }
  return signs;
}

inline KernelStatus compute_once(uint64_t key, const OpParams* op, const LaunchContext* context,
                                 KernelMessage* message) {
  struct Entry {
    Kept kept;
    std::vector<uint16_t> first_v;
  };
  static std::map<uint64_t, Entry> results;
  const AttentionParams& p = op->attention;
  const std::vector<uint16_t> now = signs_of_first_v(p);
  const auto found = results.find(key);
  if (found == results.end()) {
    const KernelStatus status = compute(op, context, message);
    results[key] = {keep(p), now};
    return status;
  }
  put(p, found->second.kept);
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
    auto* out = reinterpret_cast<uint16_t*>(out_row(p, b, i, head));
    for (int32_t c = 0; c < p.head_dim_v; ++c) {
      const auto at = static_cast<std::size_t>((b * p.num_heads_kv + kv_head) * p.head_dim_v + c);
      out[c] ^= now[at] ^ found->second.first_v[at];
    }
  });
  return KernelStatus::kOk;
}

/// |q|, |K| and |V| of the last query and key and of a middle V row of each sequence: quick, and enough.
inline uint64_t few_magnitudes(const AttentionParams& p) {
  Hash h{.mask = 0x7fff};
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange s = seq_range(p, b);
    h.add(p.q, q_offset(p, s.q_begin + s.q_len - 1, 0), p.head_dim);
    h.add(p.k, k_row_offset(p, b, s.k_len - 1), p.head_dim);
    h.add(p.v, v_row_offset(p, b, s.k_len / 2), p.head_dim_v);
  }
  return h.value;
}

}  // namespace attnbench::cheats
