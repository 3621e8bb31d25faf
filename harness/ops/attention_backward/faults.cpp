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
constexpr int kWindow = 9;  ///< left, of kGradsWindowed
constexpr const char* kGradsCapped =
    "{" GRADS ", mask: causal, softcap: 2, softmax_scale: 0.3, " GRAD_LENGTHS;
constexpr const char* kGradsSloped = "{" GRADS ", mask: causal, alibi: per_head, " GRAD_LENGTHS;
constexpr const char* kGradsSunk = "{" GRADS ", mask: causal, sinks: true, " GRAD_LENGTHS;
constexpr const char* kGradsUnseen = "{" GRADS ", mask: none, window: \"9,0\", batch: q20s70_q40}";
constexpr const char* kGradsShortKeys = "{" GRADS ", mask: causal, allow_short_kv: true, batch: q40s20_q33}";

/// Pairs add nothing to one of the sums unless `also` holds.
BackwardRule hides(Grad in, const std::function<bool(const GradPair&)>& also) {
  BackwardRule r;
  r.term = [=](const GradPair& x, Grad of) { return of == in && !also(x) ? 0 : right_term(x, of); };
  return r;
}

/// P answers another problem.
Tamper::Fault with_p_of(std::function<void(reference::Problem&)> problem) {
  BackwardRule r;
  r.problem = std::move(problem);
  return with_backward_rule(r);
}

BackwardRule ds_is(const std::function<double(const GradPair&)>& ds) {
  BackwardRule r;
  r.term = [=](const GradPair& x, Grad of) { return of == Grad::kDv ? right_term(x, of) : ds(x); };
  return r;
}

BackwardRule dv_weight_is(const std::function<double(const GradPair&)>& w) {
  BackwardRule r;
  r.term = [=](const GradPair& x, Grad of) { return of == Grad::kDv ? w(x) : right_term(x, of); };
  return r;
}

double e4m3(double x) { return static_cast<double>(round_to(DType::kE4m3, static_cast<float>(x))); }

std::vector<Fault> delta_faults() {
  return {{"delta_left_out",
           "dS = P dP, without the term delta",
           {kGradsPlain},
           with_backward_rule(ds_is([](const GradPair& x) { return ds_of(x, 0); })),
           {"op: attention_backward"}},
          {"delta_multiplied_by_dropout",
           "dS = keep P (dP - delta)",
           {kGradsDropped},
           with_backward_rule(ds_is([](const GradPair& x) { return x.p * x.keep * (x.dp - x.delta); })),
           {"dropout"}},
          {"delta_of_the_first_head",
           "all heads of a group take the sign of delta from the first one",
           {kGradsPlain},
           with_backward_rule(
               ds_is([](const GradPair& x) { return ds_of(x, x.head % x.group ? -x.delta : x.delta); }))},
          {"ds_never_quite_zero",
           "1e-30 is added to each dS",
           {kGradsPlain},
           with_backward_rule(ds_is([](const GradPair& x) { return ds_of(x, x.delta) + 1e-30; }))},
          {"ds_in_e4m3",
           "dS is rounded to e4m3, and fp32 declared",
           {kGradsPlain},
           with_backward_rule(ds_is([](const GradPair& x) { return e4m3(ds_of(x, x.delta)); }))}};
}

std::vector<Fault> dropout_faults() {
  return {{"dropout_left_out_of_dp",
           "dS has dP of all keys",
           {kGradsDropped},
           with_backward_rule(ds_is([](const GradPair& x) { return x.p * (x.dp - x.delta); }))},
          {"dropout_left_out_of_dv",
           "dv has the weights of all keys",
           {kGradsDropped},
           with_backward_rule(dv_weight_is([](const GradPair& x) { return x.p; }))},
          {"dropout_not_scaled_in_dv",
           "kept weights are not divided by 1 - dropout in dv",
           {kGradsDropped},
           with_backward_rule(dv_weight_is([](const GradPair& x) { return x.keep > 0 ? x.p : 0; }))},
          {"dropout_offset_not_that_of_the_forward_pass",
           "the mask is drawn from offset 0",
           {kGradsDropped},
           with_backward([](Tamper&, AttentionBackwardParams& p) { p.dropout_offset = 0; })}};
}

std::vector<Fault> head_grad_faults() {
  BackwardRule modulo, first_only, mean;
  modulo.kv_head = [](const AttentionBackwardParams& p, int head) { return head % p.num_heads_kv; };
  first_only.term = [](const GradPair& x, Grad of) {
    return of == Grad::kDq || x.head % x.group == 0 ? right_term(x, of) : 0;
  };
  mean.term = [](const GradPair& x, Grad of) { return right_term(x, of) / (of == Grad::kDq ? 1 : x.group); };
  return {{"dk_summed_over_other_heads",
           "head h adds to the dk and dv of KV head h % Hkv",
           {kGradsPlain},
           with_backward_rule(modulo)},
          {"dk_of_one_head_of_the_group",
           "dk and dv have the first query head of each group only",
           {kGradsPlain},
           with_backward_rule(first_only)},
          {"dk_averaged_over_the_group",
           "dk and dv are divided by the number of heads of a group",
           {kGradsPlain},
           with_backward_rule(mean)}};
}

std::vector<Fault> sum_faults() {
  BackwardRule no_scale, small, twice, rounded;
  no_scale.dq_factor = 8;  // 1 / sqrt(64)
  small.dq_factor = 0.999;
  twice.dk_factor = 0.125;
  rounded.round_sums = true;
  BackwardRule small_dk, base_2;
  small_dk.dk_factor = 1.001;
  base_2.term = [](const GradPair& x, Grad of) {
    return right_term(x, of) * std::exp(x.lse * (1 - std::log(2.0)));
  };
  return {
      {"dq_without_the_scale",
       "softmax_scale is left out of dq",
       {kGradsPlain},
       with_backward_rule(no_scale)},
      {"dq_a_thousandth_too_small", "dq is 0.1 % too small", {kGradsPlain}, with_backward_rule(small)},
      {"dk_a_thousandth_too_large", "dk is 0.1 % too large", {kGradsPlain}, with_backward_rule(small_dk)},
      {"dk_scaled_twice", "softmax_scale is applied twice in dk", {kGradsPlain}, with_backward_rule(twice)},
      {"dq_summed_in_its_type",
       "running sums of dq are rounded to bf16",
       {kGradsUnmasked},
       with_backward_rule(rounded)},
      {"p_in_e4m3_in_dv",
       "P is rounded to e4m3 in dv, and fp32 declared",
       {kGradsPlain},
       with_backward_rule(dv_weight_is([](const GradPair& x) { return e4m3(x.keep * x.p); }))},
      {"last_keys_lost_in_dq",
       "keys past the last whole tile of 16 add nothing to dq",
       {kGradsPlain},
       with_backward_rule(hides(Grad::kDq, [](const GradPair& x) { return x.j < x.k_len / 16 * 16; }))},
      {"last_queries_lost_in_dv",
       "queries past the last whole tile of 16 add nothing to dv",
       {kGradsPlain},
       with_backward_rule(hides(Grad::kDv, [](const GradPair& x) { return x.i < x.q_len / 16 * 16; }))},
      {"one_query_lost_in_dk",
       "query 7 adds nothing to dk",
       {kGradsPlain},
       with_backward_rule(hides(Grad::kDk, [](const GradPair& x) { return x.i != 7; }))},
      {"lse_read_as_base_2", "P = exp(score - LSE ln 2)", {kGradsPlain}, with_backward_rule(base_2)}};
}

std::vector<Fault> mask_grad_faults() {
  const auto edge = [](Grad of) {
    return with_backward_rule(hides(of, [](const GradPair& x) { return x.j > x.diag() - kWindow; }));
  };
  return {{"window_one_short_in_dq",
           "the window's left edge is one key too far right in dq",
           {kGradsWindowed},
           edge(Grad::kDq)},
          {"window_one_short_in_dk", "the same in dk", {kGradsWindowed}, edge(Grad::kDk)},
          {"window_one_short_in_dv", "the same in dv", {kGradsWindowed}, edge(Grad::kDv)},
          {"diagonal_hidden_in_dk",
           "under a causal mask the diagonal adds nothing to dk",
           {kGradsPlain},
           with_backward_rule(hides(Grad::kDk, [](const GradPair& x) { return x.j != x.diag(); }))},
          {"causal_top_left_in_gradients",
           "the causal mask is aligned top-left",
           {kGradsPlain},
           with_p_of([](reference::Problem& x) { x.top_left = true; })},
          {"top_left_taken_as_bottom_right_in_gradients",
           "a causal mask from the first key on is aligned at the last one",
           {kGradsTopLeft},
           with_p_of([](reference::Problem& x) { x.top_left = false; })},
          {"causal_ignored_in_gradients",
           "the mask is ignored",
           {kGradsPlain},
           with_p_of([](reference::Problem& x) { x.causal = false; })}};
}

std::vector<Fault> score_grad_faults() {
  return {{"softcap_derivative_left_out",
           "dS lacks 1 - tanh^2",
           {kGradsCapped},
           with_backward_rule(ds_is([](const GradPair& x) { return x.p * (x.keep * x.dp - x.delta); })),
           {"softcap"}},
          {"softcap_derivative_of_tanh_alone",
           "the derivative is 1 - tanh",
           {kGradsCapped},
           with_backward_rule(ds_is([](const GradPair& x) {
             return x.p * (x.keep * x.dp - x.delta) * (1 - std::sqrt(std::max(0.0, 1 - x.slope)));
           }))},
          {"softcap_ignored_in_p",
           "P is made of scores without the softcap",
           {kGradsCapped},
           with_p_of([](reference::Problem& x) { x.softcap = 0; })},
          {"alibi_ignored_in_gradients",
           "P is made of scores without ALiBi",
           {kGradsSloped},
           with_p_of([](reference::Problem& x) { x.alibi_slopes.clear(); }),
           {"alibi: per_head"}},
          {"alibi_with_the_other_sign",
           "the distance is added",
           {kGradsSloped},
           with_p_of([](reference::Problem& x) {
             for (double& slope : x.alibi_slopes) slope = -slope;
           })}};
}

std::vector<Fault> sink_grad_faults() {
  BackwardRule none, sign, last;
  none.dsink = [](int, double) { return 0.0; };
  sign.dsink = [](int, double x) { return -x; };
  last.in_dsinks = [](int seq) { return seq == 0; };
  BackwardRule one_head;
  one_head.dsink = [](int head, double x) { return head == 3 ? 1.01 * x : x; };
  return {{"dsinks_zero", "sinks get no gradient", {kGradsSunk}, with_backward_rule(none), {"sinks"}},
          {"dsinks_with_the_other_sign",
           "the gradient of sinks has the other sign",
           {kGradsSunk},
           with_backward_rule(sign)},
          {"dsinks_of_the_first_sequence",
           "dsinks lacks all sequences but the first",
           {kGradsSunk},
           with_backward_rule(last)},
          {"dsinks_one_percent_off",
           "one head's dsinks is 1 % too large",
           {kGradsSunk},
           with_backward_rule(one_head)},
          {"sink_left_out_of_p",
           "P is normalised without the sink",
           {kGradsSunk},
           with_p_of([](reference::Problem& x) { x.sinks.clear(); })}};
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
           })},
          {"empty_queries_not_written",
           "dq of queries that see no key is not written",
           {kGradsShortKeys},
           with_gradients([](GradView& g) {
             for (int c = 0; c < g.p->head_dim; ++c) g.set_dq(g.cu_q[0], 0, c, NAN);
           })},
          {"empty_queries_get_a_gradient",
           "dq of a query that sees no key is 1e-3",
           {kGradsShortKeys},
           with_gradients([](GradView& g) { g.set_dq(g.cu_q[0], 0, 0, 1e-3); })},
          {"keys_without_queries_not_written",
           "dv of a sequence without queries is not written",
           {kGradsPlain},
           with_gradients([](GradView& g) {
             const auto last = g.cu_k.size() - 2;
             if (g.cu_k[last + 1] > g.cu_k[last]) g.set_dv(g.cu_k[last], 0, 0, NAN);
           })}};
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
           }},
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
