// What a kernel is given: plain data, fixed layout, the same for built-in kernels and plug-ins.
//
// Names: B sequences; Hq query heads, Hkv key/value heads (Hq a multiple of Hkv: query head h reads KV head
// h / (Hq / Hkv)); D head_dim, Dv head_dim_v; total_q = sum of query lengths. Strides are in elements; the
// channel stride is 1. Pointers are device pointers on `cuda` devices. A pointer whose feature bit is not set
// in `features` is null.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/contract/dtype.h"

namespace attnbench {

/// What a launch uses. A kernel refuses a launch whose `features` hold a bit it does not know, so that a
/// field added later can never be ignored in silence.
enum Feature : uint64_t {
  kPackedKv = 1ull << 0,       ///< keys packed by cu_seqlens_k
  kPagedKv = 1ull << 1,        ///< keys in blocks found through block_table
  kContiguousKv = 1ull << 2,   ///< keys in a (batch, capacity) cache
  kCausal = 1ull << 3,         ///< bottom-right aligned
  kWindow = 1ull << 4,         ///< window_left or window_right is not -1
  kSoftcap = 1ull << 5,        ///< softcap > 0
  kAlibi = 1ull << 6,          ///< alibi_slopes
  kSinks = 1ull << 7,          ///< sinks
  kBf16 = 1ull << 8,           ///< q, K, V (where no bit below says otherwise) and O in bf16
  kFp16 = 1ull << 9,           ///< likewise fp16
  kFp32 = 1ull << 10,          ///< likewise fp32
  kE4m3Kv = 1ull << 11,        ///< K and V in e4m3 with descales
  kE4m3Q = 1ull << 12,         ///< q in e4m3 with descales
  kInt8K = 1ull << 13,         ///< K in int8 with descales per (token, head)
  kInt8V = 1ull << 14,         ///< V in int8 with descales per (head, channel)
  kInt8Q = 1ull << 15,         ///< q in int8 with descales per (token, head)
  kProbs = 1ull << 16,         ///< attention probabilities returned in probs
  kDropout = 1ull << 17,       ///< p_dropout > 0
  kRotary = 1ull << 18,        ///< rotary embedding of new keys (and queries)
  kAppend = 1ull << 19,        ///< new keys and values written in the same call
  kSplitKv = 1ull << 20,       ///< num_splits > 0 asked for
  kPartialKv = 1ull << 21,     ///< packed KV with seqused_k shorter than its cu_seqlens_k slot
  kHnd = 1ull << 22,           ///< paged KV with heads outside tokens (num_blocks, Hkv, block_size, D)
  kKTokenScales = 1ull << 23,  ///< kv_append: scales of K computed per (token, head), not given
  kVTokenScales = 1ull << 24,  ///< likewise of V
  kHeadDimV = 1ull << 25,      ///< head_dim_v differs from head_dim
  kVIsK = 1ull << 26,          ///< V is a view of K: row r of V is the first Dv channels of row r of K
  kRotaryQ = 1ull << 27,       ///< rotary.q_position turns some query to another position than its diagonal
};

/// Position to which the rotary embedding turns query i of sequence b. cache_seqlens = seqused_k[b] - new_len
/// is the length of the cache before the append, left padding not counted.
///
/// flash_attn_with_kvcache (FlashAttention 2 and 3) turns by kFromCacheSeqlens under a causal mask or a
/// window, by kAtCacheSeqlens where it has neither. Both count left padding there, in queries and new keys
/// alike.
enum class RotaryQ : int32_t {
  kDiagonal = 0,          ///< i + len_k - len_q, where the mask has it
  kFromCacheSeqlens = 1,  ///< cache_seqlens + i: the diagonal where new_len == len_q
  kAtCacheSeqlens = 2,    ///< cache_seqlens, all queries of a sequence
};

/// Rotary position embedding. Channels [0, dim) of a row at position n turn in pairs (a, b), pair i by the
/// angle of column i:
///   a' = a * cos[n][i] - b * sin[n][i],  b' = a * sin[n][i] + b * cos[n][i]
/// in float32 (products and sums may be fused); channels from dim on stay as they are.
struct RotaryParams {
  const float* cos;     ///< (positions, dim / 2)
  const float* sin;     ///< (positions, dim / 2)
  int32_t dim;          ///< even, 2..D
  int32_t interleaved;  ///< 0: NeoX halves, pair i is channels i and i + dim / 2; 1: channels 2 i and 2 i + 1
  int32_t positions;    ///< rows of the tables: past the last position of new keys and queries
  RotaryQ q_position;   ///< of attention
};

/// One call of attention: O = softmax(mask(softcap(q k^T * softmax_scale))) v per sequence and head.
struct AttentionParams {
  uint64_t features;  ///< OR of Feature

  int32_t batch;         ///< B, may be 0
  int32_t num_heads_q;   ///< Hq
  int32_t num_heads_kv;  ///< Hkv
  int32_t head_dim;      ///< D of q and K, 1..576
  int32_t head_dim_v;    ///< Dv of V and O, 1..512; D unless kHeadDimV is set
  int64_t total_q;       ///< rows of q and O; cu_seqlens_q[B] or, in a replayed graph, more
  int32_t max_seqlen_q;  ///< longest query length
  int32_t max_seqlen_k;  ///< longest key length

  DType dtype_q;
  DType dtype_k;
  DType dtype_v;
  DType dtype_out;

  // Queries, packed: row t of sequence b is cu_seqlens_q[b] + t.
  const void* q;  ///< (total_q, Hq, D)
  int64_t q_stride_token;
  int64_t q_stride_head;
  const int32_t* cu_seqlens_q;  ///< (B + 1), [0] need not be 0

  // Keys and values, rows of D and of Dv channels. One address rule serves all sources; row r of sequence b
  // and KV head h lies at
  //   packed:      (cu_seqlens_k[b] + r) * stride_token + h * stride_head
  //   paged:       block_table[b][r / block_size] * stride_block + (r % block_size) * stride_token
  //                  + h * stride_head
  //   contiguous:  cache_batch_idx[b] * stride_block + (cache_leftpad[b] + r) * stride_token + h * stride_head
  // Where kVIsK is set v == k, with equal strides and types and Dv <= D: a kernel may load such a row once,
  // or treat V as any other tensor.
  const void* k;
  const void* v;
  int64_t k_stride_block;
  int64_t k_stride_token;
  int64_t k_stride_head;
  int64_t v_stride_block;
  int64_t v_stride_token;
  int64_t v_stride_head;
  const int32_t* cu_seqlens_k;  ///< (B + 1), packed only
  const int32_t* seqused_k;     ///< (B) key lengths; null: differences of cu_seqlens_k
  /// (B, block_table_stride), paged only. Entries past a sequence's last block are junk. Entries of blocks
  /// that lie left of every query's window may be junk too, unless new rows enter the block: they are not
  /// followed.
  const int32_t* block_table;
  int64_t block_table_stride;      ///< entries per row
  int32_t block_size;              ///< tokens per block, paged only
  int32_t num_blocks;              ///< blocks in the pool (rows of the cache when contiguous)
  const int32_t* cache_batch_idx;  ///< (B), contiguous only, null: identity
  const int32_t* cache_leftpad;    ///< (B), contiguous only, null: zeros
  int64_t cache_capacity;          ///< contiguous only: tokens of a row of the cache, left padding included

  // Append in the same call (kAppend, paged and contiguous KV). Before it attends, the launch writes new
  // token i of sequence b to row seqused_k[b] - new_len + i, new_len = cu_seqlens_new[b + 1] -
  // cu_seqlens_new[b], at most seqused_k[b], which counts the new tokens. All else in the cache stays as it
  // was. A sequence needs leftpad + seqused_k[b] <= cache_capacity, or <= block_table_stride * block_size.
  const void* k_new;  ///< (total_new, Hkv, D) in dtype_k
  const void* v_new;  ///< (total_new, Hkv, D) in dtype_v
  int64_t k_new_stride_token;
  int64_t k_new_stride_head;
  int64_t v_new_stride_token;
  int64_t v_new_stride_head;
  const int32_t* cu_seqlens_new;  ///< (B + 1), [0] need not be 0
  int64_t total_new;              ///< cu_seqlens_new[B]
  void* k_cache;                  ///< k, to write to
  void* v_cache;                  ///< v, to write to

  // Rotary embedding (kRotary, with kAppend): of new keys, at the position of their row (left padding not
  // counted), rounded to dtype_k; and of queries, at rotary.q_position, rounded to dtype_q.
  RotaryParams rotary;

  // Mask. With diag = i + len_k - len_q for query i, key j is visible when
  //   (window_left < 0 or j >= diag - window_left) and (right < 0 or j <= diag + right),
  // right = 0 where causal, else window_right. Rows left of every query's window (of a sequence without
  // queries: all rows) may hold NaN, which may be read and discarded by a select, never multiplied by zero.
  int32_t causal;
  int32_t window_left;   ///< -1: unlimited
  int32_t window_right;  ///< -1: unlimited

  // Scores.
  float softmax_scale;  ///< factor of q.k, usually 1/sqrt(D)
  float softcap;        ///< 0: none; else s = softcap * tanh(q.k * softmax_scale / softcap), before the mask
  // ALiBi, after the softcap: s -= slope * distance with distance = |diag - j|, or its square root where
  // alibi_sqrt is set.
  const float* alibi_slopes;   ///< (Hq) or (B, Hq): slope of sequence b, head h at b * alibi_stride_batch + h
  int64_t alibi_stride_batch;  ///< 0: the same slopes for every sequence
  int32_t alibi_sqrt;
  // N > 0: the keys that a row sees, or that a tile of rows sees, are cut into N parts, whose partial states
  // are merged. N may be more than there are keys: the parts left over are empty. 0: the kernel's choice.
  int32_t num_splits;
  // A sink is one more term exp(sink) in the denominator, counted once per row, with no value of its own: O
  // shrinks, and the LSE includes it. A row that sees no key has O = 0 and LSE = sink.
  const float* sinks;  ///< (Hq) in units of a score

  // Descales of quantised inputs: the value is the stored number times its descale.
  //   e4m3 q, K, V: per (sequence, KV head); of sequence b, head h at b * stride_outer + h * stride_head
  //   int8 q: per (token, query head); of packed row t, head h at t * stride_outer + h * stride_head
  //   int8 K: per (row, KV head), addressed as the row itself, with stride_outer for stride_token
  //   int8 V: per (KV head, channel); of head h, channel c at h * stride_head + c
  // Descales of rows that must not be read, or that no query sees, may hold NaN, as the rows may.
  const float* q_descale;
  const float* k_descale;
  const float* v_descale;
  int64_t q_descale_stride_outer;
  int64_t q_descale_stride_head;
  int64_t k_descale_stride_block;  ///< int8 only
  int64_t k_descale_stride_outer;
  int64_t k_descale_stride_head;
  int64_t v_descale_stride_outer;
  int64_t v_descale_stride_head;

  // Outputs. A query row that sees no key gets O = 0 and LSE = -inf (with sinks: the sink).
  void* out;  ///< (total_q, Hq, Dv)
  int64_t out_stride_token;
  int64_t out_stride_head;
  float* lse;  ///< (Hq, total_q) natural log of the sum of exp(score); never null
  int64_t lse_stride_head;

  // Training extras. Probabilities p = exp(score - LSE), before dropout, of query head h, packed row t, key j
  // at h * stride_head + t * stride_token + j, for every j < max_seqlen_k: 0 where j is not visible, and
  // where the sequence has no key j.
  float* probs;  ///< (Hq, total_q, max_seqlen_k)
  int64_t probs_stride_head;
  int64_t probs_stride_token;
  // Dropout: V is multiplied by p * dropout_scale where dropout_keeps (dropout.h), by 0 elsewhere. LSE and
  // probs know nothing of it.
  float p_dropout;  ///< [0, 1)
  uint32_t reserved;
  uint64_t dropout_seed;
  uint64_t dropout_offset;
};

/// Scales of a quantised cache, given or computed.
struct ScaleParams {
  /// Of KV head h, channel c at h * given_stride_head + c * given_stride_channel; a stride of 0 shares them.
  const float* given;
  int64_t given_stride_head;
  int64_t given_stride_channel;
  /// One per (token, head), max |x| over the channels divided by 448 (e4m3) or 127 (int8), or 1 where that is
  /// 0; written to a float32 cache addressed like the rows: slot s of head h at
  /// s / block_size * stride_block + s % block_size * stride_token + h * stride_head.
  float* computed;
  int64_t stride_block;
  int64_t stride_token;
  int64_t stride_head;
};

/// One call of kv_append: cache row slot_mapping[t] of head h := key[t][h], value[t][h]; slot -1 skips the
/// token. Slot s is row s % block_size of block s / block_size. Everything else in the cache stays as it was.
struct KvAppendParams {
  uint64_t features;

  int64_t num_tokens;    ///< T, padding tokens included
  int32_t num_heads_kv;  ///< Hkv
  int32_t head_dim;      ///< D
  DType dtype_in;
  DType dtype_k;  ///< dtype_in, or e4m3 (kE4m3Kv) or int8 (kInt8K)
  DType dtype_v;  ///< dtype_in, or e4m3 (kE4m3Kv) or int8 (kInt8V)
  int32_t block_size;
  int32_t num_blocks;

  const void* key;    ///< (T, Hkv, D)
  const void* value;  ///< (T, Hkv, D)
  int64_t key_stride_token;
  int64_t key_stride_head;
  int64_t value_stride_token;
  int64_t value_stride_head;
  const int64_t* slot_mapping;  ///< (T)

  void* k_cache;
  void* v_cache;
  int64_t k_stride_block;
  int64_t k_stride_token;
  int64_t k_stride_head;
  int64_t v_stride_block;
  int64_t v_stride_token;
  int64_t v_stride_head;

  // Rotary embedding of the new keys (kRotary).
  RotaryParams rotary;
  const int32_t* positions;  ///< (T), of padding tokens not read

  // Quantising: stored = x / scale, rounded once to the cache's type, saturating, where x is the input, in
  // float32 and rotated (not rounded in between). A stored number stands for itself times its scale.
  ScaleParams k_scale;
  ScaleParams v_scale;
};

static_assert(std::is_standard_layout_v<AttentionParams> && std::is_trivially_copyable_v<AttentionParams>);
static_assert(std::is_standard_layout_v<KvAppendParams> && std::is_trivially_copyable_v<KvAppendParams>);

}  // namespace attnbench
