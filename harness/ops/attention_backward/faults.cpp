// Faults of the backward pass.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "harness/ops/attention_backward/faults_host.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define GRADS "op: attention_backward, dtype: bf16, heads: 4/2, head_dim: 64"
#define GRAD_LENGTHS "batch: q40_q33s70_q0s9}"
constexpr const char* kGradsPlain = "{" GRADS ", mask: causal, " GRAD_LENGTHS;
constexpr const char* kGradsTopLeft = "{" GRADS ", mask: causal_top_left, " GRAD_LENGTHS;
constexpr const char* kGradsUnmasked = "{" GRADS ", mask: none, " GRAD_LENGTHS;
constexpr const char* kGradsDropped = "{" GRADS ", mask: causal, dropout: 0.3, " GRAD_LENGTHS;
constexpr const char* kGradsWindowed = "{" GRADS ", mask: none, window: \"9,3\", " GRAD_LENGTHS;
constexpr const char* kGradsCapped =
    "{" GRADS ", mask: causal, softcap: 2, softmax_scale: 0.3, " GRAD_LENGTHS;
constexpr const char* kGradsSloped = "{" GRADS ", mask: causal, alibi: per_head, " GRAD_LENGTHS;
constexpr const char* kGradsSunk = "{" GRADS ", mask: causal, sinks: true, " GRAD_LENGTHS;
constexpr const char* kGradsUnseen = "{" GRADS ", mask: none, window: \"9,0\", batch: q20s70_q40}";
constexpr const char* kGradsShortKeys = "{" GRADS ", mask: causal, allow_short_kv: true, batch: q40s20_q33}";

/// P answers another problem.
Tamper::Fault with_p_of(std::function<void(reference::Problem&)> problem) {
  BackwardRule r;
  r.problem = std::move(problem);
  return with_backward_rule(r);
}

std::vector<Fault> delta_faults() {
  BackwardRule never_0;
  never_0.term = [](const GradPair& x, Grad of) { return right_term(x, of) + (of == Grad::kDv ? 0 : 1e-30); };
  return {
      known_gradient("delta_left_out", "dS = P dP, without the term delta", {kGradsPlain},
                     {"op: attention_backward"}),
      known_gradient("delta_multiplied_by_dropout", "dS = keep P (dP - delta)", {kGradsDropped}, {"dropout"}),
      known_gradient("delta_of_the_first_head", "all heads of a group have the delta of the first one",
                     {kGradsPlain}),
      {"ds_never_quite_zero", "1e-30 is added to each dS", {kGradsPlain}, with_backward_rule(never_0)},
      known_gradient("ds_in_e4m3", "dS is rounded to e4m3, and fp32 declared", {kGradsPlain})};
}

std::vector<Fault> dropout_faults() {
  return {known_gradient("dropout_left_out_of_dp", "dS has dP of all keys", {kGradsDropped}),
          known_gradient("dropout_left_out_of_dv", "dv has the weights of all keys", {kGradsDropped}),
          known_gradient("dropout_not_scaled_in_dv", "kept weights are not divided by 1 - dropout in dv",
                         {kGradsDropped}),
          {"dropout_offset_not_that_of_the_forward_pass",
           "the mask is drawn from offset 0",
           {kGradsDropped},
           with_backward([](Tamper&, AttentionBackwardParams& p) { p.dropout_offset = 0; }),
           {},
           "the offset of dropout is not applied"}};
}

std::vector<Fault> head_grad_faults() {
  return {known_gradient("dk_summed_over_other_heads", "head h adds to the dk and dv of KV head h % Hkv",
                         {kGradsPlain}),
          known_gradient("dk_of_one_head_of_the_group",
                         "dk and dv have the first query head of each group only", {kGradsPlain}),
          known_gradient("dk_averaged_over_the_group",
                         "dk and dv are divided by the number of heads of a group", {kGradsPlain})};
}

std::vector<Fault> sum_faults() {
  BackwardRule small, small_dk;
  small.dq_factor = 0.999;
  small_dk.dk_factor = 1.001;
  return {known_gradient("dq_without_the_scale", "softmax_scale is left out of dq", {kGradsPlain}),
          {"dq_a_thousandth_too_small",
           "dq is 0.1 % too small",
           {kGradsPlain},
           with_backward_rule(small),
           {},
           "dq has a factor of 0.999"},
          {"dk_a_thousandth_too_large",
           "dk is 0.1 % too large",
           {kGradsPlain},
           with_backward_rule(small_dk),
           {},
           "dk has a factor of 1.001"},
          known_gradient("dk_scaled_twice", "softmax_scale is applied twice in dk", {kGradsPlain}),
          known_gradient("dq_summed_in_its_type", "running sums of dq are rounded to bf16", {kGradsUnmasked}),
          known_gradient("p_in_e4m3_in_dv", "P is rounded to e4m3 in dv, and fp32 declared", {kGradsPlain}),
          known_gradient("last_keys_lost_in_dq", "keys past the last whole tile of 16 add nothing to dq",
                         {kGradsPlain}),
          known_gradient("last_queries_lost_in_dv",
                         "queries past the last whole tile of 16 add nothing to dv", {kGradsPlain}),
          known_gradient("one_query_lost_in_dk", "query 7 adds nothing to dk", {kGradsPlain}),
          known_gradient("lse_read_as_base_2", "P = exp(score - LSE ln 2)", {kGradsPlain})};
}

std::vector<Fault> mask_grad_faults() {
  return {known_gradient("window_one_short_in_dq", "the window's left edge is one key too far right in dq",
                         {kGradsWindowed}),
          known_gradient("window_one_short_in_dk", "the same in dk", {kGradsWindowed}),
          known_gradient("window_one_short_in_dv", "the same in dv", {kGradsWindowed}),
          known_gradient("diagonal_hidden_in_dk", "under a causal mask the diagonal adds nothing to dk",
                         {kGradsPlain}),
          {"causal_top_left_in_gradients",
           "the causal mask is aligned top-left",
           {kGradsPlain},
           with_p_of([](reference::Problem& x) { x.top_left = true; }),
           {},
           "aligned top-left"},
          {"top_left_taken_as_bottom_right_in_gradients",
           "a causal mask from the first key on is aligned at the last one",
           {kGradsTopLeft},
           with_p_of([](reference::Problem& x) { x.top_left = false; }),
           {},
           "aligned bottom-right"},
          {"causal_ignored_in_gradients",
           "the mask is ignored",
           {kGradsPlain},
           with_p_of([](reference::Problem& x) { x.causal = false; }),
           {},
           "the causal mask is not applied"}};
}

std::vector<Fault> score_grad_faults() {
  return {known_gradient("softcap_derivative_left_out", "dS lacks 1 - tanh^2", {kGradsCapped}, {"softcap"}),
          known_gradient("softcap_derivative_of_tanh_alone", "the derivative is 1 - tanh", {kGradsCapped}),
          {"softcap_ignored_in_p",
           "P is made of scores without the softcap",
           {kGradsCapped},
           with_p_of([](reference::Problem& x) { x.softcap = 0; }),
           {},
           "in P, the softcap is not applied"},
          {"alibi_ignored_in_gradients",
           "P is made of scores without ALiBi",
           {kGradsSloped},
           with_p_of([](reference::Problem& x) { x.alibi_slopes.clear(); }),
           {"alibi: per_head"},
           "ALiBi is not applied"},
          {"alibi_with_the_other_sign",
           "the distance is added",
           {kGradsSloped},
           with_p_of([](reference::Problem& x) {
             for (double& slope : x.alibi_slopes) slope = -slope;
           }),
           {},
           "ALiBi has the wrong sign"}};
}

std::vector<Fault> sink_grad_faults() {
  BackwardRule none, sign, last;
  none.dsink = [](int, double) { return 0.0; };
  sign.dsink = [](int, double x) { return -x; };
  last.in_dsinks = [](int seq) { return seq == 0; };
  BackwardRule one_head;
  one_head.dsink = [](int head, double x) { return head == 3 ? 1.01 * x : x; };
  return {{"dsinks_zero",
           "sinks get no gradient",
           {kGradsSunk},
           with_backward_rule(none),
           {"sinks"},
           "dsinks is 0"},
          {"dsinks_with_the_other_sign",
           "the gradient of sinks has the other sign",
           {kGradsSunk},
           with_backward_rule(sign),
           {},
           "dsinks has the other sign"},
          {"dsinks_of_the_first_sequence",
           "dsinks lacks all sequences but the first",
           {kGradsSunk},
           with_backward_rule(last),
           {},
           "dsinks has the terms of sequence 0 alone"},
          {"dsinks_one_percent_off",
           "one head's dsinks is 1 % too large",
           {kGradsSunk},
           with_backward_rule(one_head),
           {},
           "off by a factor: of head 3 by 1.01"},
          {"sink_left_out_of_p",
           "P is normalised without the sink",
           {kGradsSunk},
           with_p_of([](reference::Problem& x) { x.sinks.clear(); }),
           {},
           "the sinks are not applied"}};
}

std::vector<Fault> layout_grad_faults() {
  return {{"d_out_strides_of_out",
           "dO is addressed as O",
           {kGradsPlain},
           with_backward([](Tamper&, AttentionBackwardParams& p) {
             p.d_out_stride_token = p.out_stride_token;
             p.d_out_stride_head = p.out_stride_head;
           })},
          {"dk_strides_of_k",
           "dk is addressed as K",
           {kGradsPlain},
           with_backward([](Tamper&, AttentionBackwardParams& p) {
             p.dk_stride_token = p.k_stride_token;
             p.dk_stride_head = p.k_stride_head;
           })},
          {"dv_strides_of_v",
           "dv is addressed as V",
           {kGradsPlain},
           with_backward([](Tamper&, AttentionBackwardParams& p) {
             p.dv_stride_token = p.v_stride_token;
             p.dv_stride_head = p.v_stride_head;
           })},
          {"unseen_keys_not_written",
           "dk of keys that no query sees is not written",
           {kGradsUnseen},
           with_gradients([](GradView& g) {
             for (int j = 0; j < 5; ++j) {
               for (int c = 0; c < g.p->head_dim; ++c) g.set_dk(g.cu_k[0] + j, 0, c, NAN);
             }
           }),
           {},
           "perhaps not written"},
          {"empty_queries_not_written",
           "dq of queries that see no key is not written",
           {kGradsShortKeys},
           with_gradients([](GradView& g) {
             for (int c = 0; c < g.p->head_dim; ++c) g.set_dq(g.cu_q[0], 0, c, NAN);
           }),
           {},
           "perhaps not written"},
          {"empty_queries_get_a_gradient",
           "dq of a query that sees no key is 1e-3",
           {kGradsShortKeys},
           with_gradients([](GradView& g) { g.set_dq(g.cu_q[0], 0, 0, 1e-3); }),
           {},
           "perhaps masked pairs have a weight"},
          {"keys_without_queries_not_written",
           "dv of a sequence without queries is not written",
           {kGradsPlain},
           with_gradients([](GradView& g) {
             const auto last = g.cu_k.size() - 2;
             if (g.cu_k[last + 1] > g.cu_k[last]) g.set_dv(g.cu_k[last], 0, 0, NAN);
           }),
           {},
           "perhaps not written"}};
}

std::vector<Fault> state_grad_faults() {
  return {{"dq_added_to_what_was_there",
           "dq is added up by atomics, and not set to zero before",
           {kGradsPlain},
           [](Tamper& t, const OpParams& op) {
             const AttentionBackwardParams& p = op.attention_backward;
             const auto bytes = p.total_q * p.dq_stride_token * static_cast<int64_t>(dtype_size(p.dtype));
             const auto before = t.read<unsigned char>(p.dq, bytes);
             const KernelStatus s = t.launch(op);
             if (s != KernelStatus::kOk) return s;
             auto after = t.read<unsigned char>(p.dq, bytes);
             for (int64_t i = 0; i < p.total_q * p.dq_stride_token; ++i) {
               const float sum = load_float(p.dtype, before.data(), i) + load_float(p.dtype, after.data(), i);
               store_float(p.dtype, after.data(), i, sum);
             }
             t.write(p.dq, after);
             return s;
           },
           {},
           "added to what was there before"},
          {"race_in_dq",
           "in one of four launches the last bit of a dq differs",
           {kGradsPlain},
           afterwards<&OpParams::attention_backward>([](Tamper& t, const AttentionBackwardParams& p) {
             if (t.launches() % 4 != 2 || p.total_q == 0) return;
             auto dq = t.read<unsigned char>(p.dq, static_cast<int64_t>(dtype_size(p.dtype)));
             dq[0] ^= 1;
             t.write(p.dq, dq);
           }),
           {},
           "",
           4,
           kDeterministic},
          {"one_element_past_dv",
           "one element is written behind dv",
           {kGradsPlain},
           afterwards<&OpParams::attention_backward>([](Tamper& t, const AttentionBackwardParams& p) {
             const auto size = static_cast<int64_t>(dtype_size(p.dtype));
             t.write(static_cast<const char*>(p.dv) + p.total_k * p.dv_stride_token * size,
                     std::vector<unsigned char>(dtype_size(p.dtype), 0x3f));
           })},
          {"d_out_overwritten",
           "delta is left in dO",
           {kGradsPlain},
           afterwards<&OpParams::attention_backward>([](Tamper& t, const AttentionBackwardParams& p) {
             t.write(p.d_out, std::vector<unsigned char>(dtype_size(p.dtype), 0x11));
           })}};
}

}  // namespace

FaultClass backward_faults() {
  return {"gradients",
          joined({delta_faults(), dropout_faults(), head_grad_faults(), sum_faults(), mask_grad_faults(),
                  score_grad_faults(), sink_grad_faults(), layout_grad_faults(), state_grad_faults()})};
}

}  // namespace attnbench
