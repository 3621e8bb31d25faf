// Faults of kernels that assume dense tensors, or use the strides of another tensor. They are right on dense
// tensors.
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kPagedStrided =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q5s70_q1s100}";
constexpr const char* kPackedStrided =
    "{kv: packed, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q40_q17s30_q1s50}";
constexpr const char* kStridedProbs =
    "{kv: packed, dtype: bf16, heads: 4/2, head_dim: 64, mask: causal, probs: true, batch: q20_q3s33}";
constexpr const char* kE4m3Strided =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: e4m3, heads: 8/2, head_dim: 128, mask: causal, "
    "batch: "
    "q5s70_q1s100}";
constexpr const char* kInCall =
    "{kv: paged, append: in_call, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q5s70_q1s100}";
constexpr const char* kTokens =
    "{op: kv_append, kv: paged, dtype: bf16, heads: 4, head_dim: 64, batch: q5s70_q1s100}";
constexpr const char* kInt8Strided =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: int8, heads: 8/2, head_dim: 64, mask: causal, batch: "
    "q5s70_q1s100}";
constexpr const char* kStridedAlibi =
    "{kv: packed, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, alibi: per_sequence, batch: "
    "q33s50_q2s80_q5}";
constexpr const char* kGivenScales =
    "{op: kv_append, kv: paged, dtype: bf16, kv_dtype: int8, heads: 4, head_dim: 64, batch: q5s70_q1s100}";
constexpr const char* kGivenE4m3Scales =
    "{op: kv_append, kv: paged, dtype: bf16, kv_dtype: e4m3, heads: 4, head_dim: 64, batch: q5s70_q1s100}";
constexpr const char* kComputedScales =
    "{op: kv_append, kv: paged, dtype: bf16, kv_dtype: e4m3, scales: per_token, heads: 4, head_dim: 64, "
    "batch: q5s70_q1s100}";
constexpr const char* kMerge =
    "{op: merge_states, dtype: bf16, heads: 8, head_dim: 64, states: 3, batch: q37}";

/// Addresses scales as a dense tensor of tokens with Hkv heads.
void take_as_dense(const KvAppendParams& p, ScaleParams& s) {
  s.stride_head = 1;
  s.stride_token = p.num_heads_kv;
  s.stride_block = int64_t{p.num_heads_kv} * p.block_size;
}

/// Sets the padding behind the heads of the cache's first token to 0, as a kernel for dense caches may do.
void clear_behind_token(Tamper& t, void* cache, DType type, int64_t used, int64_t stride_token) {
  const auto size = static_cast<int64_t>(dtype_size(type));
  if (stride_token <= used) return;
  t.write(static_cast<char*>(cache) + used * size,
          std::vector<unsigned char>(static_cast<std::size_t>((stride_token - used) * size)));
}

std::vector<Fault> strides_of_attention() {
  return {{"q_taken_as_dense",
           "queries are addressed by Hq and D",
           {kPagedStrided, kPackedStrided},
           with_params([](Tamper&, AttentionParams& p) {
             p.q_stride_token = int64_t{p.num_heads_q} * p.head_dim;
             p.q_stride_head = p.head_dim;
           })},
          {"output_has_the_strides_of_q",
           "O is addressed as q",
           {kPagedStrided, kPackedStrided},
           with_params([](Tamper&, AttentionParams& p) {
             p.out_stride_token = p.q_stride_token;
             p.out_stride_head = p.q_stride_head;
           })},
          {"lse_taken_as_dense",
           "heads of LSE are total_q apart",
           {kPagedStrided, kPackedStrided},
           with_params([](Tamper&, AttentionParams& p) { p.lse_stride_head = p.total_q; })},
          {"v_has_the_strides_of_k",
           "V is addressed as K",
           {kPagedStrided, kPackedStrided},
           with_params([](Tamper&, AttentionParams& p) {
             p.v_stride_block = p.k_stride_block;
             p.v_stride_token = p.k_stride_token;
             p.v_stride_head = p.k_stride_head;
           })},
          {"blocks_taken_as_dense",
           "blocks are block_size tokens apart",
           {kPagedStrided},
           with_params([](Tamper&, AttentionParams& p) {
             if ((p.features & kHnd) != 0 || (p.features & kPagedKv) == 0) return;
             p.k_stride_block = p.k_stride_token * p.block_size;
             p.v_stride_block = p.v_stride_token * p.block_size;
           })},
          {"probs_taken_as_dense",
           "rows of probabilities are max_seqlen_k apart",
           {kStridedProbs},
           with_params([](Tamper&, AttentionParams& p) {
             p.probs_stride_token = p.max_seqlen_k;
             p.probs_stride_head = p.total_q * p.max_seqlen_k;
           })},
          {"v_descale_has_the_strides_of_k_descale",
           "descales of V are addressed as those of K",
           {kE4m3Strided},
           with_params([](Tamper&, AttentionParams& p) {
             p.v_descale_stride_outer = p.k_descale_stride_outer;
             p.v_descale_stride_head = p.k_descale_stride_head;
           })},
          {"k_descale_taken_as_dense",
           "descales of K are Hkv apart",
           {kE4m3Strided},
           with_params([](Tamper&, AttentionParams& p) {
             p.k_descale_stride_outer = p.num_heads_kv;
             p.k_descale_stride_head = 1;
           })},
          {"int8_k_descale_taken_as_dense",
           "descales of int8 K are addressed by Hkv and block_size",
           {kInt8Strided},
           with_params([](Tamper&, AttentionParams& p) {
             if ((p.features & kPagedKv) == 0) return;
             const bool hnd = (p.features & kHnd) != 0;
             p.k_descale_stride_head = hnd ? p.block_size : 1;
             p.k_descale_stride_outer = hnd ? 1 : p.num_heads_kv;
             p.k_descale_stride_block = int64_t{p.num_heads_kv} * p.block_size;
           })},
          {"slopes_taken_as_dense",
           "ALiBi slopes of sequences are Hq apart",
           {kStridedAlibi},
           with_params([](Tamper&, AttentionParams& p) {
             if (p.alibi_stride_batch > 0) p.alibi_stride_batch = p.num_heads_q;
           })}};
}

std::vector<Fault> strides_of_in_call() {
  return {{"in_call_caches_taken_as_dense",
           "K and V of a cache that grows are addressed by Hkv, D and block_size",
           {kInCall},
           with_params([](Tamper&, AttentionParams& p) {
             if ((p.features & kPagedKv) == 0 || (p.features & kHnd) != 0) return;
             p.k_stride_head = p.v_stride_head = p.head_dim;
             p.k_stride_token = p.v_stride_token = int64_t{p.num_heads_kv} * p.head_dim;
             p.k_stride_block = p.v_stride_block = p.k_stride_token * p.block_size;
           })},
          {"in_call_clears_behind_a_token",
           "what lies in the cache behind the heads of a token is written",
           {kInCall},
           afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
             if ((p.features & kHnd) != 0) return;
             clear_behind_token(t, p.k_cache, p.dtype_k, int64_t{p.num_heads_kv} * p.head_dim,
                                p.k_stride_token);
           })},
          {"in_call_new_v_has_the_strides_of_new_k",
           "new values are addressed as new keys",
           {kInCall},
           with_params([](Tamper&, AttentionParams& p) {
             p.v_new_stride_token = p.k_new_stride_token;
             p.v_new_stride_head = p.k_new_stride_head;
           })}};
}

std::vector<Fault> strides_of_append() {
  return {{"append_values_have_the_strides_of_keys",
           "kv_append addresses values as keys",
           {kTokens},
           with_op([](Tamper&, OpParams& op) {
             op.kv_append.value_stride_token = op.kv_append.key_stride_token;
             op.kv_append.value_stride_head = op.kv_append.key_stride_head;
           })},
          {"append_caches_taken_as_dense",
           "kv_append addresses the caches by Hkv, D and block_size",
           {kTokens},
           with_append([](Tamper&, KvAppendParams& p) {
             if ((p.features & kHnd) != 0) return;
             p.k_stride_head = p.v_stride_head = p.head_dim;
             p.k_stride_token = p.v_stride_token = int64_t{p.num_heads_kv} * p.head_dim;
             p.k_stride_block = p.v_stride_block = p.k_stride_token * p.block_size;
           })},
          {"append_v_cache_has_the_strides_of_the_k_cache",
           "kv_append addresses the cache of V as that of K",
           {kTokens},
           with_append([](Tamper&, KvAppendParams& p) {
             p.v_stride_block = p.k_stride_block;
             p.v_stride_token = p.k_stride_token;
             p.v_stride_head = p.k_stride_head;
           })},
          {"append_given_scales_taken_as_dense",
           "scales of channels that kv_append is given are D apart",
           {kGivenScales},
           with_append([](Tamper&, KvAppendParams& p) {
             p.k_scale.given_stride_head = p.v_scale.given_stride_head = p.head_dim;
           })},
          {"append_given_head_scales_taken_as_dense",
           "scales of heads that kv_append is given lie side by side",
           {kGivenE4m3Scales},
           with_op([](Tamper&, OpParams& op) {
             op.kv_append.k_scale.given_stride_head = op.kv_append.v_scale.given_stride_head = 1;
           })},
          {"append_computed_scales_taken_as_dense",
           "scales that kv_append computes are stored by Hkv and block_size",
           {kComputedScales},
           with_append([](Tamper&, KvAppendParams& p) {
             if ((p.features & kHnd) != 0) return;
             take_as_dense(p, p.k_scale);
             take_as_dense(p, p.v_scale);
           })},
          {"append_v_scales_have_the_strides_of_k_scales",
           "computed scales of V are stored as those of K",
           {kComputedScales},
           with_append([](Tamper&, KvAppendParams& p) {
             p.v_scale.stride_block = p.k_scale.stride_block;
             p.v_scale.stride_token = p.k_scale.stride_token;
             p.v_scale.stride_head = p.k_scale.stride_head;
           })},
          {"append_clears_behind_a_token_of_scales",
           "what lies between computed scales of tokens is written",
           {kComputedScales},
           afterwards<&OpParams::kv_append>([](Tamper& t, const KvAppendParams& p) {
             if ((p.features & kHnd) != 0) return;
             clear_behind_token(t, p.k_scale.computed, DType::kFp32,
                                (p.num_heads_kv - 1) * p.k_scale.stride_head + 1, p.k_scale.stride_token);
           })}};
}

std::vector<Fault> strides_of_merge() {
  return {{"merge_has_one_stride_for_both",
           "merge_states addresses O as the partial states",
           {kMerge},
           with_op([](Tamper&, OpParams& op) {
             op.merge_states.partial_stride_token = op.merge_states.out_stride_token;
             op.merge_states.partial_stride_head = op.merge_states.out_stride_head;
           })}};
}

}  // namespace

FaultClass stride_faults() {
  return {"strides",
          joined({strides_of_attention(), strides_of_in_call(), strides_of_append(), strides_of_merge()})};
}

}  // namespace attnbench
