// Parameters of the ops attention and kv_append: plain data with a fixed layout, the same for built-in
// kernels and plug-ins.
//
// Names: B sequences; Hq query heads and Hkv KV heads; D head_dim, Dv head_dim_v; total_q the sum of the
// query lengths. Hq is a multiple of Hkv, and query head h reads KV head h / (Hq / Hkv). len_q and len_k are
// the lengths of a sequence in tokens; len_k includes keys that the launch appends.
//
// Strides are in elements. The stride of a channel is 1. Pointers are device pointers on `cuda` devices. A
// pointer is null if the feature that needs it is not set in `features`.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/contract/dtype.h"

namespace attnbench {

/// Features that a launch uses. A kernel refuses a launch with a bit that it does not know, so no kernel can
/// ignore a field that is added later.
enum Feature : uint64_t {
  kPackedKv = 1ull << 0,          ///< keys packed by cu_seqlens_k
  kPagedKv = 1ull << 1,           ///< keys in blocks found through block_table
  kContiguousKv = 1ull << 2,      ///< keys in a (batch, capacity) cache
  kCausal = 1ull << 3,            ///< causal mask, aligned at the last query and the last key
  kWindow = 1ull << 4,            ///< window_left or window_right is not -1
  kSoftcap = 1ull << 5,           ///< softcap > 0
  kAlibi = 1ull << 6,             ///< alibi_slopes are given
  kSinks = 1ull << 7,             ///< sinks are given
  kBf16 = 1ull << 8,              ///< O in bf16; q, K and V too, unless a quantised type below is set
  kFp16 = 1ull << 9,              ///< the same in fp16
  kFp32 = 1ull << 10,             ///< the same in fp32
  kE4m3Kv = 1ull << 11,           ///< K and V in e4m3 with descales
  kE4m3Q = 1ull << 12,            ///< q in e4m3 with descales
  kInt8K = 1ull << 13,            ///< K in int8 with descales per (token, head)
  kInt8V = 1ull << 14,            ///< V in int8 with descales per (head, channel)
  kInt8Q = 1ull << 15,            ///< q in int8 with descales per (token, head)
  kProbs = 1ull << 16,            ///< attention probabilities returned in probs
  kDropout = 1ull << 17,          ///< p_dropout > 0
  kRotary = 1ull << 18,           ///< rotary embedding of the new keys; attention: of the queries too
  kAppend = 1ull << 19,           ///< new keys and values are written in the same call
  kSplitKv = 1ull << 20,          ///< num_splits > 0
  kPartialKv = 1ull << 21,        ///< packed KV where seqused_k is shorter than the slot in cu_seqlens_k
  kHnd = 1ull << 22,              ///< paged KV in the order (num_blocks, Hkv, block_size, D)
  kKTokenScales = 1ull << 23,     ///< scales of K per (row, KV head): attention is given, kv_append computes
  kVTokenScales = 1ull << 24,     ///< the same for V
  kHeadDimV = 1ull << 25,         ///< head_dim_v differs from head_dim
  kVIsK = 1ull << 26,             ///< V is a view of K: row r of V is the first Dv channels of row r of K
  kRotaryQ = 1ull << 27,          ///< rotary.q_position moves a query off its diagonal position
  kAttentionChunk = 1ull << 28,   ///< attention_chunk > 0
  kLseBase2 = 1ull << 29,         ///< attention, merge_states: every LSE is a logarithm to base 2
  kLseTokenMajor = 1ull << 30,    ///< attention, merge_states: the LSE that is written is (total_q, Hq)
  kRaggedStates = 1ull << 31,     ///< merge_states: rows have different numbers of states
  kInfLse = 1ull << 32,           ///< merge_states: an LSE of +inf means a state without keys, as -inf does
  kTopLeft = 1ull << 33,          ///< the causal mask is aligned at the first query and the first key
  kVChannelScales = 1ull << 34,   ///< V in e4m3 or e5m2 with scales per (KV head, channel)
  kAppendQuantised = 1ull << 35,  ///< kAppend into a quantised cache
  kE4m3Out = 1ull << 36,          ///< O in e4m3: O / out_scale is stored
  kOneRow = 1ull << 37,           ///< kv_append: a value and its key are one row of the cache, as in MLA
  kCustomMask = 1ull << 38,       ///< custom_mask has a bit for each query and key
  kTopkIndices = 1ull << 39,      ///< each query sees only the keys that topk_indices lists
  kQv = 1ull << 40,               ///< a second query, qv, is multiplied with V and added to the score
  kSequsedQ = 1ull << 41,         ///< seqused_q: the rest of a sequence's slot in cu_seqlens_q is unused
  kPagedBatchIdx = 1ull << 42,    ///< paged KV: cache_batch_idx gives the row of block_table
  kPagedLeftpad = 1ull << 43,     ///< paged KV: cache_leftpad is given
  kRotaryCached = 1ull << 44,  ///< attention: the cache holds keys before the rotation; they turn when read
  kE5m2Kv = 1ull << 45,        ///< K and V in e5m2 with descales
  kQueryOut = 1ull << 46,      ///< kv_append: queries turn, too, and are returned
  kPositions64 = 1ull << 47,   ///< kv_append: positions64 is given in place of positions
  kGather = 1ull << 48,        ///< kv_move: rows of sequences go to a packed tensor
  kSeqStarts = 1ull << 49,     ///< kv_move: seq_starts is given
  kE2m1Kv = 1ull << 50,        ///< attention: K and V in e2m1x2, with kBlockScales (NVFP4)
  kBlockScales = 1ull << 51,   ///< attention: K and V have a scale per row, KV head and block of channels
  kKTail = 1ull << 52,         ///< attention: the last channels of K are in bf16, in k_tail (fp8_ds_mla)
  kDescaleRows = 1ull << 53,   ///< attention: q_descale_rows or k_descale_rows > 1
};

/// Rotary position of query i of sequence b. Here cache_seqlens = seqused_k[b] - new_len is the length of the
/// cache before the append, without left padding.
///
/// flash_attn_with_kvcache (FlashAttention 2 and 3) uses kFromCacheSeqlens if the mask is causal or has a
/// window, and kAtCacheSeqlens otherwise. Both versions add left padding to the positions of queries and of
/// new keys; this contract does not.
enum class RotaryQ : int32_t {
  kDiagonal = 0,          ///< i + len_k - len_q, the query's diagonal in the mask
  kFromCacheSeqlens = 1,  ///< cache_seqlens + i; equals kDiagonal where new_len == len_q
  kAtCacheSeqlens = 2,    ///< cache_seqlens, for all queries of the sequence
};

/// Rotary position embedding. It turns channels [0, dim) of a row at position n in pairs (a, b), where pair i
/// uses column i of the tables:
///   a' = a * cos[n][i] - b * sin[n][i],  b' = a * sin[n][i] + b * cos[n][i]
/// The arithmetic is float32; a product and a sum may be fused. Channels from dim on are unchanged.
struct RotaryParams {
  const float* cos;     ///< (positions, dim / 2)
  const float* sin;     ///< (positions, dim / 2)
  int32_t dim;          ///< even, 2..D
  int32_t interleaved;  ///< 0: NeoX halves, pair i is channels i and i + dim / 2; 1: channels 2 i and 2 i + 1
  int32_t positions;    ///< rows of the tables, more than the largest position of a new key or query
  RotaryQ q_position;   ///< attention only
};

/// One call of attention: O = softmax(mask(softcap(q k^T * softmax_scale))) v per sequence and head.
struct AttentionParams {
  uint64_t features;  ///< OR of Feature

  int32_t batch;         ///< B, 0 is allowed
  int32_t num_heads_q;   ///< Hq
  int32_t num_heads_kv;  ///< Hkv
  int32_t head_dim;      ///< D of q and K, 1..576
  int32_t head_dim_v;    ///< Dv of V and O, 1..512; equals D unless kHeadDimV is set
  int64_t total_q;       ///< rows of q and O: cu_seqlens_q[B], or more in a replayed graph
  int32_t max_seqlen_q;  ///< longest query length, in tokens
  int32_t max_seqlen_k;  ///< longest key length, in tokens

  DType dtype_q;
  DType dtype_k;
  DType dtype_v;
  DType dtype_out;  ///< bf16, fp16 or fp32; e4m3 with kE4m3Out

  // Queries, packed: row cu_seqlens_q[b] + i holds query i of sequence b.
  const void* q;  ///< (total_q, Hq, D)
  int64_t q_stride_token;
  int64_t q_stride_head;
  const int32_t* cu_seqlens_q;  ///< (B + 1), [0] may be other than 0
  /// (B), kSequsedQ: len_q of sequence b, at most cu_seqlens_q[b + 1] - cu_seqlens_q[b]. The other rows of the
  /// slot may hold NaN; their O, LSE and probs must not be written.
  const int32_t* seqused_q;
  /// (total_q, Hq, Dv) in dtype_q, kQv: the score is (q.k + qv.v) * softmax_scale, then softcap and so on.
  /// FlashAttention 3 uses it for MLA: K is the rotary part, V the latent.
  const void* qv;
  int64_t qv_stride_token;
  int64_t qv_stride_head;

  // Keys and values: rows of D and of Dv channels. Row r of sequence b and KV head h is at
  //   packed:     (cu_seqlens_k[b] + r) * stride_token + h * stride_head
  //   paged:      block_table[b'][r' / block_size] * stride_block + (r' % block_size) * stride_token
  //                 + h * stride_head, where b' = b and r' = r; kPagedBatchIdx: b' = cache_batch_idx[b];
  //                 kPagedLeftpad: r' = cache_leftpad[b] + r
  //   contiguous: cache_batch_idx[b] * stride_block + (cache_leftpad[b] + r) * stride_token + h * stride_head
  // If kVIsK is set, v == k, strides and types are equal, and Dv <= D. A kernel may then load a row once for
  // both, or treat V as a separate tensor.
  const void* k;
  const void* v;
  int64_t k_stride_block;
  int64_t k_stride_token;
  int64_t k_stride_head;
  int64_t v_stride_block;
  int64_t v_stride_token;
  int64_t v_stride_head;
  const int32_t* cu_seqlens_k;  ///< (B + 1), packed only
  const int32_t* seqused_k;     ///< (B) key lengths; null: differences of cu_seqlens_k (packed only)
  /// (B or, with kPagedBatchIdx, more; block_table_stride), paged only. Entries after a sequence's last block are
  /// junk and must not be followed. The same holds for entries of blocks that are left of every query's window,
  /// unless new rows enter the block.
  const int32_t* block_table;
  int64_t block_table_stride;  ///< entries per row
  int32_t block_size;          ///< tokens per block, paged only
  int32_t num_blocks;          ///< blocks in the pool; contiguous: rows of the cache
  /// Paged, a multiple of block_size: entries [0, shared_prefix / block_size) of block_table are the same in all
  /// sequences, as far as a sequence has so many keys. It changes no result. A kernel may read these keys once
  /// for all sequences (cascade attention), or ignore it. 0: not known.
  int32_t shared_prefix;
  const int32_t* cache_batch_idx;  ///< (B), contiguous, or paged with kPagedBatchIdx; null: identity
  const int32_t* cache_leftpad;    ///< (B), contiguous, or paged with kPagedLeftpad; null: zeros
  int64_t cache_capacity;          ///< contiguous only: tokens per cache row, left padding included

  // Append in the same call (kAppend; paged and contiguous KV). Before it attends, the launch writes new
  // token i of sequence b to row seqused_k[b] - new_len + i. Here new_len = cu_seqlens_new[b + 1] -
  // cu_seqlens_new[b]. seqused_k[b] includes the new tokens, so new_len <= seqused_k[b]. The rest of the
  // cache must not change. The sequence must fit: leftpad + seqused_k[b] <= cache_capacity (contiguous) or
  // <= block_table_stride * block_size (paged; leftpad 0 without kPagedLeftpad).
  //
  // kAppendQuantised: new rows come in the type of the cache, and are copied, or in that of the
  // bit kBf16, kFp16 or kFp32. These are stored as x / descale, rounded once to the cache's type,
  // saturating. x is the input in float32, after the rotation; descale is the one that the row is then read
  // with, and is given like those of older rows. Rows in the cache's type are not rotated.
  const void* k_new;  ///< (total_new, Hkv, D) in dtype_k_new
  const void* v_new;  ///< (total_new, Hkv, D) in dtype_v_new
  DType dtype_k_new;  ///< equals dtype_k unless kAppendQuantised is set
  DType dtype_v_new;  ///< equals dtype_v unless kAppendQuantised is set
  int64_t k_new_stride_token;
  int64_t k_new_stride_head;
  int64_t v_new_stride_token;
  int64_t v_new_stride_head;
  const int32_t* cu_seqlens_new;  ///< (B + 1), [0] may be other than 0
  int64_t total_new;              ///< cu_seqlens_new[B]
  void* k_cache;                  ///< the same memory as k, writable
  void* v_cache;                  ///< the same memory as v, writable

  // Rotary embedding (kRotary, only with kAppend or kRotaryCached). New keys turn to the position of their row,
  // without left padding, and are rounded to dtype_k. Queries turn to rotary.q_position and are rounded to
  // dtype_q. kRotaryCached (not with kAppend): all keys turn when they are read, key j to position j, and are
  // rounded to dtype_k; the cache does not change.
  RotaryParams rotary;

  // Mask. With diag = i + len_k - len_q, or diag = i with kTopLeft, query i sees key j if
  //   (window_left < 0 or j >= diag - window_left) and (right < 0 or j <= diag + right),
  // where right = 0 if causal is not 0, else window_right. With kAttentionChunk it must also lie in the
  // query's chunk: floor(j / attention_chunk) == floor(diag / attention_chunk). A query whose diag is negative
  // then sees no key. kTopLeft comes with kCausal, and never with kAttentionChunk, kAlibi and kRotary. Rows left
  // of every query's window and chunk may hold NaN, and so may all rows of a sequence without queries. A kernel
  // may read such a row and discard it by a select, but must not multiply it by zero.
  int32_t causal;
  int32_t window_left;      ///< -1: unlimited
  int32_t window_right;     ///< -1: unlimited
  int32_t attention_chunk;  ///< tokens of a chunk, counted from the sequence's first key; 0: none
  // kCustomMask: query i of sequence b sees key j only if, besides, bit n % 8 (0: the lowest) of byte
  // mask_indptr[b] + n / 8 is 1, where n = i * len_k + j. FlashInfer packs its custom masks so.
  const uint8_t* custom_mask;
  const int32_t* mask_indptr;  ///< (B + 1), in bytes; each sequence begins a byte
  // kTopkIndices (packed and paged KV): packed query t of KV head h sees only the keys whose rows stand in
  // entries [0, topk_length[t]) at t * topk_stride_token + h * topk_stride_head. An entry is the row in the
  // packed tensor, or block * block_size + row in the block; -1 is no key, and may stand anywhere. Entries
  // are distinct, in any order. Entries from topk_length[t] on are junk. Every listed key is visible by the
  // other masks. Rows that no query lists may hold NaN. No sequence needs block_table then.
  const int32_t* topk_indices;  ///< (total_q, Hkv, topk)
  int64_t topk_stride_token;
  int64_t topk_stride_head;
  const int32_t* topk_length;  ///< (total_q), 0..topk; null: topk
  int32_t topk;

  // Scores, in units of the natural logarithm: p = exp(score - LSE).
  float softmax_scale;  ///< factor of q.k, usually 1 / sqrt(D)
  float softcap;        ///< 0: none; else s = softcap * tanh(q.k * softmax_scale / softcap), before the mask
  // ALiBi, after the softcap: s -= slope * distance. The distance is |diag - j|, or its square root if
  // alibi_sqrt is not 0. The slope of sequence b, head h is at b * alibi_stride_batch + h.
  const float* alibi_slopes;   ///< (Hq) or (B, Hq)
  int64_t alibi_stride_batch;  ///< 0: all sequences share the slopes
  int32_t alibi_sqrt;
  // N > 0: the kernel cuts the keys that a row (or a tile of rows) sees into N parts, and merges their
  // partial states. If N exceeds the number of keys, some parts are empty. 0: the kernel chooses.
  int32_t num_splits;
  // A sink adds one term exp(sink) to the denominator of each row and no value to O. The LSE includes it. A
  // row that sees no key has O = 0 and LSE = sink.
  const float* sinks;  ///< (Hq) in units of a score

  // Descales of quantised inputs: value = stored number * descale.
  //   e4m3 q, e4m3 or e5m2 K and V: per (sequence, KV head); sequence b, head h at b * stride_outer +
  //     h * stride_head. A stride of 0 shares a descale: per KV head, or per tensor if both are 0
  //   the same V with kVChannelScales: per (KV head, channel), as int8 V
  //   int8 q: per (token, query head); packed row t, head h at t * stride_outer + h * stride_head
  //   int8 K, and K of these types with kKTokenScales: per (row, KV head); at the address of the row, with
  //     stride_outer in place of stride_token
  //   int8 V: per (KV head, channel); head h, channel c at h * stride_head + c. With kVTokenScales V of all these
  //     types: as int8 K, with strides of its own. vLLM's caches of scales are (num_blocks, block_size, Hkv)
  // kDescaleRows: q_descale_rows rows of int8 q, and k_descale_rows rows of K that would have one each, share a
  // descale, as blocks of SageAttention do. Query i of sequence b has that of "row" cu_q_descales[b] + i /
  // q_descale_rows. Key r has that of "row" cu_k_descales[b] + r / k_descale_rows (packed), or of its row in the
  // block or cache row divided by k_descale_rows. block_size is a multiple of k_descale_rows; there is no left padding.
  // Descales of rows that must not be read, or that no query sees, may hold NaN, as the rows may.
  // kBlockScales: the value of a number of K or V is multiplied by the scale of its block, too; the scale of
  // row r, KV head h and channel c is at the address of row r, with k_block_scale_stride_* for strides, plus
  // c / scale_block. Both tensors have strides of their own.
  //   NVFP4 (kE2m1Kv): scale_block 16, scales in e4m3, and a descale for the tensor (strides 0)
  //   fp8_ds_mla (kE4m3Kv, kKTail, kVIsK): scale_block 128, scales in fp32, and no descale (null)
  const float* q_descale;
  const float* k_descale;
  const float* v_descale;
  int64_t q_descale_stride_outer;
  int64_t q_descale_stride_head;
  int64_t k_descale_stride_block;  ///< per row only
  int64_t k_descale_stride_outer;
  int64_t k_descale_stride_head;
  int64_t v_descale_stride_block;  ///< per row only
  int64_t v_descale_stride_outer;
  int64_t v_descale_stride_head;
  const int32_t* cu_q_descales;  ///< (B + 1), q_descale_rows > 1
  const int32_t* cu_k_descales;  ///< (B + 1), k_descale_rows > 1 and packed KV
  int32_t q_descale_rows;        ///< kDescaleRows: 1 or more; else 0
  int32_t k_descale_rows;        ///< the same
  const void* k_block_scale;     ///< (rows of K, Hkv, D / scale_block) in dtype_block_scale
  const void* v_block_scale;     ///< (rows of V, Hkv, Dv / scale_block); kVIsK: k_block_scale
  int64_t k_block_scale_stride_block;
  int64_t k_block_scale_stride_token;
  int64_t k_block_scale_stride_head;
  int64_t v_block_scale_stride_block;
  int64_t v_block_scale_stride_token;
  int64_t v_block_scale_stride_head;
  int32_t scale_block;      ///< channels that share a scale, 16 or 128
  DType dtype_block_scale;  ///< e4m3 or fp32
  // kKTail: channels [Dv, D) of K are in bf16, without scales: channel c of row r, KV head h is at the address of
  // row r, with k_tail_stride_* for strides, plus c - Dv. The row at k holds Dv channels. In a row of fp8_ds_mla
  // (vLLM, FlashMLA) 512 bytes of e4m3, 4 scales in fp32 and 64 channels in bf16 follow each other.
  const void* k_tail;
  int64_t k_tail_stride_block;
  int64_t k_tail_stride_token;
  int64_t k_tail_stride_head;

  // Outputs. A query row that sees no key gets O = 0 and LSE = -inf, or LSE = sink if there are sinks.
  void* out;  ///< (total_q, Hq, Dv)
  /// (1), kE4m3Out: O / out_scale is rounded to e4m3, saturating; O in float32 is not rounded in between.
  const float* out_scale;
  int64_t out_stride_token;
  int64_t out_stride_head;
  // LSE: natural log of the sum of exp(score); with kLseBase2 that number divided by ln 2. Query head h, packed
  // row t is at h * lse_stride_head + t; with kLseTokenMajor at t * lse_stride_token + h.
  float* lse;  ///< (Hq, total_q) or, with kLseTokenMajor, (total_q, Hq); never null
  int64_t lse_stride_head;
  int64_t lse_stride_token;

  // Probabilities (kProbs), for training: p = exp(score - LSE), before dropout. Query head h, packed row t,
  // key j is at h * stride_head + t * stride_token + j, for every j < max_seqlen_k. The entry is 0 if key j
  // is not visible or is past the end of the sequence.
  float* probs;  ///< (Hq, total_q, max_seqlen_k)
  int64_t probs_stride_head;
  int64_t probs_stride_token;
  // Dropout (kDropout): the weight of V is p * dropout_scale if dropout_keeps (dropout.h) is true, else 0.
  // Dropout does not change LSE and probs.
  float p_dropout;    ///< [0, 1)
  uint32_t reserved;  ///< 0; fills the gap
  uint64_t dropout_seed;
  uint64_t dropout_offset;
};

/// Scales of a quantised cache: given, or computed by the kernel.
struct ScaleParams {
  /// (Hkv, D or Dv): KV head h, channel c at h * given_stride_head + c * given_stride_channel. A stride of 0
  /// shares the scale. e4m3, e5m2: given_stride_channel is 0, but for V with kVChannelScales.
  const float* given;
  int64_t given_stride_head;
  int64_t given_stride_channel;
  /// Output, float32, one scale per (slot, head): max |x| over the channels, divided by 448 (e4m3), 57344
  /// (e5m2) or 127 (int8); 1 if the quotient is 0. Slot s of head h is at s / block_size * stride_block + s % block_size *
  /// stride_token + h * stride_head.
  float* computed;
  int64_t stride_block;
  int64_t stride_token;
  int64_t stride_head;
};

/// One call of kv_append: it copies key[t][h] and value[t][h] to cache row slot_mapping[t] of KV head h. Slot
/// s is row s % block_size of block s / block_size. Slot -1 skips the token. The rest of the cache must not
/// change.
struct KvAppendParams {
  uint64_t features;  ///< OR of Feature

  int64_t num_tokens;    ///< T, padding tokens (slot -1) included
  int32_t num_heads_kv;  ///< Hkv
  int32_t head_dim;      ///< D of keys, 1..256
  int32_t head_dim_v;    ///< Dv of values, 1..512; equals D unless kHeadDimV is set
  DType dtype_in;        ///< of key and value: bf16, fp16 or fp32
  DType dtype_k;         ///< dtype_in, or e4m3 (kE4m3Kv), e5m2 (kE5m2Kv) or int8 (kInt8K)
  DType dtype_v;         ///< dtype_in, or e4m3 (kE4m3Kv), e5m2 (kE5m2Kv) or int8 (kInt8V)
  int32_t block_size;    ///< tokens per block
  int32_t num_blocks;    ///< blocks in the pool

  const void* key;    ///< (T, Hkv, D)
  const void* value;  ///< (T, Hkv, Dv)
  int64_t key_stride_token;
  int64_t key_stride_head;
  int64_t value_stride_token;
  int64_t value_stride_head;
  const int64_t* slot_mapping;  ///< (T); -1 skips the token

  // kOneRow: rows of V and K interleave. Strides and types are equal, and k_cache is v_cache + Dv elements, so
  // that a row of the cache is Dv channels of the value and then D channels of the key. MLA: the value is the
  // latent, the key its rotary part. Scales of both are given and equal, because a row has one descale.
  void* k_cache;
  void* v_cache;
  int64_t k_stride_block;
  int64_t k_stride_token;
  int64_t k_stride_head;
  int64_t v_stride_block;
  int64_t v_stride_token;
  int64_t v_stride_head;

  // Rotary embedding of the new keys (kRotary), at `positions`.
  RotaryParams rotary;
  const int32_t* positions;    ///< (T); positions of padding tokens must not be read
  const int64_t* positions64;  ///< (T), kPositions64: in place of positions
  // Queries of the same tokens (kQueryOut): query_out[t][h] is query[t][h], turned like the keys (kRotary) and
  // rounded once to dtype_query_out; e4m3 stores the value / query_scale, saturating. Padding tokens are left
  // out: their rows of query_out must not be written.
  const void* query;         ///< (T, Hq, D) in dtype_in
  void* query_out;           ///< (T, Hq, D) in dtype_query_out
  const float* query_scale;  ///< (1), e4m3 only
  int64_t query_stride_token;
  int64_t query_stride_head;
  int64_t query_out_stride_token;
  int64_t query_out_stride_head;
  int32_t num_heads_q;    ///< Hq
  DType dtype_query_out;  ///< dtype_in or e4m3

  // Quantising: stored = x / scale, rounded once to the cache's type, saturating. x is the input in float32,
  // after the rotation; it is not rounded in between. The value of a stored number is that number times its
  // scale.
  ScaleParams k_scale;
  ScaleParams v_scale;
};

static_assert(std::is_standard_layout_v<AttentionParams> && std::is_trivially_copyable_v<AttentionParams>);
static_assert(std::is_standard_layout_v<KvAppendParams> && std::is_trivially_copyable_v<KvAppendParams>);

}  // namespace attnbench
