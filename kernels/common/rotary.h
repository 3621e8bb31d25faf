// Rotary position embedding of one channel, and the rotary position of a query.
#pragma once

#include <cstdint>

#include "kernels/common/addressing.h"
#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

/// Rotary position of query `i` of sequence `b`, whose lengths are `seq`.
ATTNBENCH_HD inline int64_t query_position(const AttentionParams& p, int32_t b, const SeqRange& seq,
                                           int32_t i) {
  if (p.rotary.q_position == RotaryQ::kDiagonal) return int64_t{i} + seq.k_len - seq.q_len;
  const int64_t cache_seqlen = int64_t{seq.k_len} - (p.features & kAppend ? new_len(p, b) : 0);
  return p.rotary.q_position == RotaryQ::kFromCacheSeqlens ? cache_seqlen + i : cache_seqlen;
}

/// Rotary position of token `token` of a kv_append.
ATTNBENCH_HD inline int64_t token_position(const KvAppendParams& p, int64_t token) {
  return p.features & kPositions64 ? p.positions64[token] : p.positions[token];
}

/// Channel `c` of a row at `position`, after the rotation. `load(c)` returns channel c before the rotation.
/// Requires 0 <= position < r.positions.
template <class Load>
ATTNBENCH_HD inline float rotated(const RotaryParams& r, int64_t position, int32_t c, Load load) {
  const float x = load(c);
  if (c >= r.dim) return x;
  const int32_t half = r.dim / 2;
  const bool second = r.interleaved ? c % 2 == 1 : c >= half;
  const int32_t column = r.interleaved ? c / 2 : second ? c - half : c;
  const int32_t distance = r.interleaved ? 1 : half;
  const float other = load(second ? c - distance : c + distance);
  const float cos = r.cos[position * half + column];
  const float sin = r.sin[position * half + column];
  return second ? other * sin + x * cos : x * cos - other * sin;
}

/// Channel `c` of a key of a launch with kRotaryCached, at position `key`, as it enters the products.
template <class Load>
ATTNBENCH_HD inline float turned_key(const AttentionParams& p, int32_t key, int32_t c, Load load) {
  return round_to(p.dtype_k, rotated(p.rotary, key, c, load));
}

}  // namespace attnbench
