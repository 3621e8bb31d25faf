#include "harness/config/feature_keys.h"

namespace attnbench {
namespace {

struct FeatureKey {
  uint64_t bit;
  const char* key;
  Op op = Op::kAttention;  ///< of a bit with two meanings; a bit with one has one row
};

constexpr FeatureKey kFeatureKeys[] = {
    {kPackedKv, "kv: packed"},
    {kPagedKv, "kv: paged"},
    {kContiguousKv, "kv: contiguous"},
    {kCausal, "mask: causal"},
    {kWindow, "window: \"64,0\""},
    {kSoftcap, "softcap: 30"},
    {kAlibi, "alibi: per_head"},
    {kSinks, "sinks: true"},
    {kBf16, "dtype: bf16"},
    {kFp16, "dtype: fp16"},
    {kFp32, "dtype: fp32"},
    {kE4m3Kv, "kv_dtype: e4m3"},
    {kE4m3Q, "q_dtype: e4m3, kv_dtype: e4m3"},
    {kInt8K, "kv_dtype: int8_k"},
    {kInt8V, "kv_dtype: int8"},
    {kInt8Q, "q_dtype: int8, kv_dtype: int8_k"},
    {kProbs, "probs: true"},
    {kDropout, "dropout: 0.1"},
    {kRotary, "rotary: neox"},
    {kAppend, "append: in_call"},
    {kSplitKv, "num_splits: 4"},
    {kPartialKv, "gap_tokens: 8"},
    {kHnd, "kv_layout: hnd"},
    {kKTokenScales, "kv_dtype: e4m3, k_descales: per_token"},
    {kKTokenScales, "kv_dtype: int8, scales: per_token_k", Op::kKvAppend},
    {kVTokenScales, "kv_dtype: e4m3, v_descales: per_token"},
    {kVTokenScales, "kv_dtype: int8, scales: per_token", Op::kKvAppend},
    {kHeadDimV, "head_dim_v: 64"},
    {kVIsK, "v_is_k_view: true"},
    {kRotaryQ, "rotary_q: at_cache_seqlens"},
    {kAttentionChunk, "attention_chunk: 64"},
    {kLseBase2, "lse_log: base2"},
    {kLseTokenMajor, "out_lse_layout: token_major"},
    {kRaggedStates, "states_per_row: varied"},
    {kInfLse, "empty_lse: plus_inf"},
    {kTopLeft, "mask: causal_top_left"},
    {kVChannelScales, "kv_dtype: e4m3, v_descales: per_channel"},
    {kAppendQuantised, "append: in_call, kv_dtype: e4m3"},
    {kE4m3Out, "out_dtype: e4m3"},
    {kOneRow, "one_row: true"},
    {kCustomMask, "custom_mask: tree"},
    {kTopkIndices, "topk: 64"},
    {kQv, "qv: true"},
    {kSequsedQ, "gap_queries: 8"},
    {kPagedBatchIdx, "kv: paged, block_table_rows: shuffled"},
    {kPagedLeftpad, "kv: paged, leftpad: 8"},
    {kE5m2Kv, "kv_dtype: e5m2"},
    {kGather, "move: gather"},
    {kSeqStarts, "starts: any"},
    {kRotaryCached, "rotary: neox, rotary_cached: true"},
    {kQueryOut, "query_out: same"},
    {kPositions64, "rotary: neox, positions: int64"},
    {kE2m1Kv, "kv_dtype: nvfp4"},
    {kBlockScales, "kv_dtype: nvfp4"},
    {kKTail, "kv_dtype: fp8_ds_mla"},
    {kDescaleRows, "kv_dtype: int8_k, k_descale_rows: 8"},
};

}  // namespace

const char* key_that_needs(uint64_t feature, Op op) {
  const char* key = "";
  for (const FeatureKey& k : kFeatureKeys) {
    if (k.bit == feature && (*key == '\0' || k.op == op)) key = k.key;
  }
  return key;
}

}  // namespace attnbench
