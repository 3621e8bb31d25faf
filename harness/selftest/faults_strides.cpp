// Faults of kernels that take rows to lie wall to wall, or one tensor as another: right on dense tensors.
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kPaged =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q5s70_q1s100}";
constexpr const char* kPacked =
    "{kv: packed, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q40_q17s30_q1s50}";
constexpr const char* kWithProbs =
    "{kv: packed, dtype: bf16, heads: 4/2, head_dim: 64, mask: causal, probs: true, batch: q20_q3s33}";
constexpr const char* kE4m3 =
    "{kv: paged, block_size: 16, dtype: bf16, kv_dtype: e4m3, heads: 8/2, head_dim: 128, mask: causal, "
    "batch: "
    "q5s70_q1s100}";
constexpr const char* kInCall =
    "{kv: paged, append: in_call, dtype: bf16, heads: 8/2, head_dim: 64, mask: causal, batch: q5s70_q1s100}";
constexpr const char* kTokens =
    "{op: kv_append, kv: paged, dtype: bf16, heads: 4, head_dim: 64, batch: q5s70_q1s100}";
constexpr const char* kMerge =
    "{op: merge_states, dtype: bf16, heads: 8, head_dim: 64, states: 3, batch: q37}";

Tamper::Fault with_op(std::function<void(OpParams&)> change) {
  return [change](Tamper& t, const OpParams& op) {
    OpParams p = op;
    change(p);
    return t.launch(p);
  };
}

}  // namespace

FaultClass stride_faults() {
  return {"strides",
          {{"q_taken_as_dense",
            "queries are addressed by Hq and D",
            {kPaged, kPacked},
            with_params([](Tamper&, AttentionParams& p) {
              p.q_stride_token = int64_t{p.num_heads_q} * p.head_dim;
              p.q_stride_head = p.head_dim;
            })},
           {"output_has_the_strides_of_q",
            "O is addressed as q",
            {kPaged, kPacked},
            with_params([](Tamper&, AttentionParams& p) {
              p.out_stride_token = p.q_stride_token;
              p.out_stride_head = p.q_stride_head;
            })},
           {"lse_taken_as_dense",
            "heads of LSE are total_q apart",
            {kPaged, kPacked},
            with_params([](Tamper&, AttentionParams& p) { p.lse_stride_head = p.total_q; })},
           {"v_has_the_strides_of_k",
            "V is addressed as K",
            {kPaged, kPacked},
            with_params([](Tamper&, AttentionParams& p) {
              p.v_stride_block = p.k_stride_block;
              p.v_stride_token = p.k_stride_token;
              p.v_stride_head = p.k_stride_head;
            })},
           {"blocks_taken_as_dense",
            "blocks are block_size tokens apart",
            {kPaged},
            with_params([](Tamper&, AttentionParams& p) {
              if ((p.features & kHnd) != 0 || (p.features & kPagedKv) == 0) return;
              p.k_stride_block = p.k_stride_token * p.block_size;
              p.v_stride_block = p.v_stride_token * p.block_size;
            })},
           {"probs_taken_as_dense",
            "rows of probabilities are max_seqlen_k apart",
            {kWithProbs},
            with_params([](Tamper&, AttentionParams& p) {
              p.probs_stride_token = p.max_seqlen_k;
              p.probs_stride_head = p.total_q * p.max_seqlen_k;
            })},
           {"v_descale_has_the_strides_of_k_descale",
            "descales of V are addressed as those of K",
            {kE4m3},
            with_params([](Tamper&, AttentionParams& p) {
              p.v_descale_stride_outer = p.k_descale_stride_outer;
              p.v_descale_stride_head = p.k_descale_stride_head;
            })},
           {"k_descale_taken_as_dense",
            "descales of K are Hkv apart",
            {kE4m3},
            with_params([](Tamper&, AttentionParams& p) {
              p.k_descale_stride_outer = p.num_heads_kv;
              p.k_descale_stride_head = 1;
            })},
           {"in_call_new_v_has_the_strides_of_new_k",
            "new values are addressed as new keys",
            {kInCall},
            with_params([](Tamper&, AttentionParams& p) {
              p.v_new_stride_token = p.k_new_stride_token;
              p.v_new_stride_head = p.k_new_stride_head;
            })},
           {"append_values_have_the_strides_of_keys",
            "kv_append addresses values as keys",
            {kTokens},
            with_op([](OpParams& op) {
              op.kv_append.value_stride_token = op.kv_append.key_stride_token;
              op.kv_append.value_stride_head = op.kv_append.key_stride_head;
            })},
           {"merge_has_one_stride_for_both",
            "merge_states addresses O as the partial states",
            {kMerge},
            with_op([](OpParams& op) {
              op.merge_states.partial_stride_token = op.merge_states.out_stride_token;
              op.merge_states.partial_stride_head = op.merge_states.out_stride_head;
            })}}};
}

}  // namespace attnbench
