// Declares the coarsest arithmetic that the interface can name (P in e4m3, sums in bf16, a rough exp), so that a wide
// tolerance follows, and leaves out V of every key lighter than a tenth of the heaviest so far.
// Source: a "precision downgrade" is among the known hacks of KernelBench (Makora, "Reward hacks", 2025).
#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static Numerics numerics(const OpParams*) {
  return {.p_type = DType::kE4m3, .acc_type = DType::kBf16, .exp_rel_err = 0x1p-7, .mma_roundoff = 0x1p-10};
}

static KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage*) {
  const AttentionParams& p = op->attention;
  for_rows(p, 0, p.num_heads_q, [&](int32_t b, int32_t i, int32_t head) {
    const SeqRange seq = seq_range(p, b);
    const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
    const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
    const int64_t q = q_offset(p, seq.q_begin + i, head), o = out_offset(p, seq.q_begin + i, head);
    float out[256] = {}, max = -INFINITY, sum = 0;
    for (int32_t j = keys.begin; j < keys.end; ++j) {
      const int64_t k = k_row_offset(p, b, j) + kv_head * p.k_stride_head;
      const int64_t v = v_row_offset(p, b, j) + kv_head * p.v_stride_head;
      float dot = 0;
      for (int32_t c = 0; c < p.head_dim; ++c) {
        dot += load_float(p.dtype_q, p.q, q + c) * load_float(p.dtype_k, p.k, k + c);
      }
      const float score = dot * p.softmax_scale, top = std::max(max, score);
      const float kept = std::exp(max - top), weight = std::exp(score - top);
      sum = sum * kept + weight;
      max = top;
      if (weight < 0.1f) continue;
      for (int32_t c = 0; c < p.head_dim; ++c)
        out[c] = out[c] * kept + weight * load_float(p.dtype_v, p.v, v + c);
    }
    for (int32_t c = 0; c < p.head_dim; ++c)
      store_float(p.dtype_out, p.out, o + c, sum == 0 ? 0.0f : out[c] / sum);
    lse_row(p, b, i, head) = lse_of(max, sum);
  });
  return KernelStatus::kOk;
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(claims_coarse, "declares the coarsest arithmetic", k.numerics = attnbench::cheats::numerics;
                k.launch = attnbench::cheats::launch);
