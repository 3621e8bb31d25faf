// Who gets which part of the GPU, from what the host knows of a step.
#pragma once

#include <algorithm>

#include "kernels/contract/attention_params.h"

namespace attnbench::sm90_mixed {

/// Times of a step's parts alone, guessed from what the host knows, as only the device knows the lengths: one
/// chunk of max_seqlen_q tokens, whose rows see max_seqlen_k keys but for half of the chunk, and batch - 1
/// decodes of half as many keys. Not from total_q, which may count rows of nobody: these must not change a
/// result's bits.
struct Estimate {
  double chunk_us;   ///< 4 Hq D operations per query and key, at 650 TFLOP/s
  double decode_us;  ///< 4 Hkv D bytes of K and V per key, at 3 TB/s
};

inline Estimate estimate(const AttentionParams& p) {
  const double tokens = p.max_seqlen_q, longest = p.max_seqlen_k;
  const double window = p.window_left < 0 ? longest : p.window_left + 1.0;
  const double chunk_keys = std::min(std::max(longest - tokens / 2, tokens / 2), window);
  const double decode_keys = std::min(longest / 2, window);
  return {4.0 * p.num_heads_q * p.head_dim * tokens * chunk_keys / 650e6,
          4.0 * p.num_heads_kv * p.head_dim * (p.batch - 1) * decode_keys / 3e6};
}

/// Whether one launch of sm90_prefill does all. It takes about the sum of both times; the kernel that does
/// both `together`, where it can, takes some 4 % more than the chunks alone and a part of the decodes' time;
/// two launches beside each other the longer of both and some 30 us for their beginning, and for
/// multiprocessors that are idle when the one or the other ends. So it pays where decodes, or both, are
/// short, and where there are no decodes; not where decodes are most of a step, as their few long tiles then
/// leave multiprocessors idle.
inline bool one_launch(const Estimate& e, bool together) {
  constexpr double kFewDecodes = 6, kSmallChunk = 40, kSmallDecodes = 25;
  if (e.decode_us == 0) return true;
  if (e.decode_us > 1.5 * e.chunk_us) return false;
  return together ? e.decode_us <= kFewDecodes : e.chunk_us <= kSmallChunk && e.decode_us <= kSmallDecodes;
}

/// The part of the multiprocessors that the decodes get beside the chunks: as few as draw most of the
/// memory's bandwidth, more where the decodes are likely to last longer than the chunks.
inline double decode_share(const Estimate& e) {
  if (e.decode_us < 1.5 * e.chunk_us) return 0.25;
  return e.decode_us < 2.5 * e.chunk_us ? 0.31 : 0.37;
}

}  // namespace attnbench::sm90_mixed
