// How a step is divided between the two kernels, from what the host knows of it.
#pragma once

#include <algorithm>

#include "kernels/contract/attention_params.h"
#include "kernels/cuda/common/gpu_rates.h"

namespace attnbench::sm90_mixed {

/// Times that a step's two parts would take alone. Only the device knows the lengths, so they are guessed
/// from what the host knows. One sequence is a chunk of max_seqlen_q tokens, whose rows see max_seqlen_k keys
/// less half of the chunk. The other batch - 1 are decodes of max_seqlen_k / 2 keys. total_q is not used: it
/// may count rows that belong to no sequence, which must not change a result's bits.
struct Estimate {
  double chunk_us;   ///< 4 Hq D operations per query and key, at kTensorShare of the GPU's rate
  double decode_us;  ///< K and V of each key, 2 Hkv D numbers, at kMemoryShare of the GPU's rate
};

/// The shares of its rates that a kernel reaches: 650 TFLOP/s and 3 TB/s on an H100.
inline constexpr double kTensorShare = 0.607, kMemoryShare = 0.895;

inline Estimate estimate(const AttentionParams& p, const hopper::GpuRates& rates) {
  const double tokens = p.max_seqlen_q, longest = p.max_seqlen_k;
  const double window = p.window_left < 0 ? longest : p.window_left + 1.0;
  const double chunk_keys = std::min(std::max(longest - tokens / 2, tokens / 2), window);
  const double decode_keys = std::min(longest / 2, window);
  return {4.0 * p.num_heads_q * p.head_dim * tokens * chunk_keys / (kTensorShare * rates.tensor_flop_per_us),
          2.0 * p.num_heads_kv * p.head_dim * static_cast<double>(dtype_size(p.dtype_k)) * (p.batch - 1) *
              decode_keys / (kMemoryShare * rates.memory_bytes_per_us)};
}

/// Most query rows per KV head of a decode: sequences of no more rows are sm90_decode's, the others
/// sm90_prefill's.
inline constexpr int kDecodeRows = 16;

/// Whether sm90_decode does all, because no sequence has many rows: it takes up to 64 per KV head.
inline bool few_rows(const AttentionParams& p) {
  constexpr int64_t kMostRows = 64;
  const int group = p.num_heads_q / p.num_heads_kv;
  return p.max_seqlen_q <= std::max(kDecodeRows / group, 1) || int64_t{p.max_seqlen_q} * group <= kMostRows;
}

/// Whether sm90_prefill does a step of few rows sooner: with e4m3 KV and more than 32 rows per KV head it takes less
/// time for a key than sm90_decode (half at head_dim 128), and 14 us longer to begin. Only where it splits: so without
/// softcap or window. At head_dim 64 it is slower.
inline bool prefill_is_sooner(const AttentionParams& p) {
  constexpr int64_t kRows = 32, kKeys = 1 << 17;  // keys of all sequences and KV heads
  return (p.features & kE4m3Kv) && p.head_dim >= 128 && p.softcap == 0.0f && p.window_left < 0 &&
         int64_t{p.max_seqlen_q} * (p.num_heads_q / p.num_heads_kv) > kRows &&
         int64_t{p.batch} * p.num_heads_kv * p.max_seqlen_k >= kKeys;
}

/// Whether one launch of sm90_prefill does all. The three ways take:
///   one launch of sm90_prefill   about the sum of both times
///   the kernel that does both    some 4 % more than the chunks alone, and a part of the decodes' time
///                                (`together`: it supports the step)
///   two launches side by side    the longer of both times, and some 30 us for their beginning and for
///                                multiprocessors that are idle when one of them ends
/// So one launch pays where decodes, or both, are short, and where there are no decodes. It does not pay
/// where decodes are most of a step, because their few long tiles then leave multiprocessors idle.
inline bool one_launch(const Estimate& e, bool together) {
  constexpr double kFewDecodes = 6, kSmallChunk = 40, kSmallDecodes = 25;
  if (e.decode_us == 0) return true;
  if (e.decode_us > 1.5 * e.chunk_us) return false;
  return together ? e.decode_us <= kFewDecodes : e.chunk_us <= kSmallChunk && e.decode_us <= kSmallDecodes;
}

/// The share of the multiprocessors that the decodes get beside the chunks. It is as few as draw most of the
/// memory's bandwidth, and more where the decodes are likely to last longer than the chunks.
inline double decode_share(const Estimate& e) {
  if (e.decode_us < 1.5 * e.chunk_us) return 0.25;
  return e.decode_us < 2.5 * e.chunk_us ? 0.31 : 0.37;
}

}  // namespace attnbench::sm90_mixed
