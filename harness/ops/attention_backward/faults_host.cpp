#include "harness/ops/attention_backward/faults_host.h"

#include "harness/ops/attention_backward/judge_mistakes.h"
#include "harness/ops/attention_backward/tensors_shared.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

std::size_t index(int64_t i) { return static_cast<std::size_t>(i); }

int64_t size_in_bytes(int64_t elements, DType t) { return elements * static_cast<int64_t>(dtype_size(t)); }

void set(DType t, std::vector<unsigned char>& to, int64_t at, double x) {
  store_float(t, to.data(), at, static_cast<float>(x));
}

/// The forward pass of a launch.
AttentionParams forward_of(const AttentionBackwardParams& b) {
  AttentionParams p{};
  ops::attention_backward::for_shared(p, b, [](auto& to, const auto& from) { to = from; });
  p.dtype_q = p.dtype_k = p.dtype_v = b.dtype;
  return p;
}

/// The same with dO in place of q.
AttentionParams with_d_out(const AttentionBackwardParams& b) {
  AttentionParams p = forward_of(b);
  p.q = b.d_out;
  p.q_stride_token = b.d_out_stride_token;
  p.q_stride_head = b.d_out_stride_head;
  p.head_dim = b.head_dim_v;
  return p;
}

/// The inputs of one launch.
class HostInputs : public reference::BackwardInputs {
 public:
  HostInputs(Tamper& t, const AttentionBackwardParams& p) : in(t, forward_of(p)), d_out_(t, with_d_out(p)) {}
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    in.load_q(seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    in.load_k(seq, head, begin, end, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    in.load_v(seq, head, begin, end, out);
  }
  void load_d_out(int seq, int head, int begin, int end, double* out) const override {
    d_out_.load_q(seq, head, begin, end, out);
  }
  const HostView in;

 private:
  const HostView d_out_;
};

/// Writes the gradients of one launch by a rule.
void write_gradients(const HostInputs& inputs, const BackwardRule& rule, GradView& view) {
  const AttentionBackwardParams& p = *view.p;
  const reference::Problem right = inputs.in.problem();
  reference::Problem p_of = right;
  if (rule.problem) rule.problem(p_of);
  std::vector<double> dsinks(view.dsinks.size());
  for (int b = 0; b < p.batch; ++b) {
    const GradPairs pairs(right, p_of, inputs, b, 1);
    for (int i = 0; i < inputs.in.q_len(b); ++i) {
      for (int h = 0; h < p.num_heads_q; ++h) {
        view.set_row(Grad::kDq, view.cu_q[index(b)] + i, h, pairs.row(rule, Grad::kDq, i, h));
        if (!dsinks.empty() && (!rule.in_dsinks || rule.in_dsinks(b))) dsinks[index(h)] += pairs.dsink(i, h);
      }
    }
    for (int j = 0; j < inputs.in.k_len(b); ++j) {
      for (int h = 0; h < p.num_heads_kv; ++h) {
        for (const Grad of : {Grad::kDk, Grad::kDv})
          view.set_row(of, view.cu_k[index(b)] + j, h, pairs.row(rule, of, j, h));
      }
    }
  }
  for (std::size_t h = 0; h < dsinks.size(); ++h)
    view.dsinks[h] = static_cast<float>(rule.dsink ? rule.dsink(static_cast<int>(h), dsinks[h]) : dsinks[h]);
}

}  // namespace

void GradView::set_dq(int64_t token, int head, int channel, double x) {
  set(p->dtype, dq, token * p->dq_stride_token + head * p->dq_stride_head + channel, x);
}
void GradView::set_dk(int64_t token, int head, int channel, double x) {
  set(p->dtype, dk, token * p->dk_stride_token + head * p->dk_stride_head + channel, x);
}
void GradView::set_dv(int64_t token, int head, int channel, double x) {
  set(p->dtype, dv, token * p->dv_stride_token + head * p->dv_stride_head + channel, x);
}

void GradView::set_row(Grad of, int64_t token, int head, const std::vector<double>& row) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    const auto set = of == Grad::kDq   ? &GradView::set_dq
                     : of == Grad::kDk ? &GradView::set_dk
                                       : &GradView::set_dv;
    (this->*set)(token, head, static_cast<int>(c), row[c]);
  }
}

Tamper::Fault with_gradients(const std::function<void(GradView&)>& change) {
  return afterwards<&OpParams::attention_backward>([change](Tamper& t, const AttentionBackwardParams& p) {
    if (p.batch == 0) return;
    const auto read = [&](const void* from, int64_t elements) {
      return t.read<unsigned char>(from, size_in_bytes(elements, p.dtype));
    };
    GradView view{&p,
                  read(p.dq, p.total_q * p.dq_stride_token),
                  read(p.dk, p.total_k * p.dk_stride_token),
                  read(p.dv, p.total_k * p.dv_stride_token),
                  {},
                  t.read<int32_t>(p.cu_seqlens_q, p.batch + 1),
                  t.read<int32_t>(p.cu_seqlens_k, p.batch + 1)};
    if (p.dsinks) view.dsinks = t.read<float>(p.dsinks, p.num_heads_q);
    change(view);
    t.write(p.dq, view.dq);
    t.write(p.dk, view.dk);
    t.write(p.dv, view.dv);
    if (p.dsinks) t.write(p.dsinks, view.dsinks);
  });
}

Tamper::Fault with_backward_rule(const BackwardRule& rule) {
  return [rule](Tamper& t, const OpParams& op) {
    const HostInputs inputs(t, op.attention_backward);
    return with_gradients([&](GradView& view) { write_gradients(inputs, rule, view); })(t, op);
  };
}

Tamper::Fault with_backward(const std::function<void(Tamper&, AttentionBackwardParams&)>& change) {
  return changed<&OpParams::attention_backward>(change);
}

Fault known_gradient(const std::string& name, std::string what, std::vector<std::string> cases,
                     std::vector<std::string> ignores) {
  const auto launch = [name](Tamper& t, const OpParams& op) {
    const HostInputs inputs(t, op.attention_backward);
    BackwardRule rule;
    for (const GradMistake& m : grad_mistakes(inputs.in.problem(), op.attention_backward.dtype)) {
      if (m.fault == name) static_cast<GradRule&>(rule) = m.rule;
    }
    return with_backward_rule(rule)(t, op);
  };
  return {name, std::move(what), std::move(cases), launch, std::move(ignores)};
}

}  // namespace attnbench
