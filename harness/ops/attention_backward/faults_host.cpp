#include "harness/ops/attention_backward/faults_host.h"

#include <cmath>

#include "harness/ops/attention_backward/tensors_shared.h"
#include "harness/selftest/fault.h"
#include "kernels/contract/dropout.h"

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

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

void add(double* to, double factor, const double* x, int n) {
  for (int c = 0; c < n; ++c) to[c] += factor * x[c];
}

/// Computes the gradients of one launch by a rule.
class HostBackward {
 public:
  HostBackward(Tamper& t, const AttentionBackwardParams& p, const BackwardRule& rule)
      : p_(p), in_(t, forward_of(p)), d_out_(t, with_d_out(p)), right_(in_.problem()), rule_(rule) {}

  void write(GradView& view) const {
    reference::Problem problem = right_;
    problem.probs = true;
    if (rule_.problem) rule_.problem(problem);
    const std::vector<RowAnswer> rows = answers(problem, in_);
    std::vector<double> dsinks(view.dsinks.size());
    std::size_t first = 0;
    for (int b = 0; b < p_.batch; ++b) {
      sequence(b, rows.data() + first, view, dsinks);
      first += index(int64_t{in_.q_len(b)} * p_.num_heads_q);
    }
    for (std::size_t h = 0; h < dsinks.size(); ++h) {
      view.dsinks[h] =
          static_cast<float>(rule_.dsink ? rule_.dsink(static_cast<int>(h), dsinks[h]) : dsinks[h]);
    }
  }

 private:
  void sequence(int b, const RowAnswer* rows, GradView& view, std::vector<double>& dsinks) const {
    const int q_len = in_.q_len(b), k_len = in_.k_len(b), d = p_.head_dim, dv = p_.head_dim_v;
    const int kv_heads = p_.num_heads_kv, group = p_.num_heads_q / kv_heads;
    const int64_t q0 = in_.cu_q[index(b)], k0 = in_.cu_k[index(b)];
    std::vector<double> q(index(q_len * d)), d_out(index(q_len * dv)), k(index(k_len * d)),
        v(index(k_len * dv));
    std::vector<double> dk_sum(k.size() * index(kv_heads)), dv_sum(v.size() * index(kv_heads)), dq(index(d));
    for (int h = 0; h < p_.num_heads_q; ++h) {
      const int to = rule_.kv_head ? rule_.kv_head(p_, h) : h / group;
      in_.load_q(b, h, 0, q_len, q.data());
      d_out_.load_q(b, h, 0, q_len, d_out.data());
      in_.load_k(b, h / group, 0, k_len, k.data());
      in_.load_v(b, h / group, 0, k_len, v.data());
      for (int i = 0; i < q_len; ++i) {
        const RowAnswer& row = rows[int64_t{i} * p_.num_heads_q + h];
        GradPair x{.i = i, .head = h, .q_len = q_len, .k_len = k_len, .group = group};
        const double *q_i = &q[index(i * d)], *d_out_i = &d_out[index(i * dv)];
        x.lse = row.lse;
        x.delta = dot(row.o.data(), d_out_i, dv);
        if (!dsinks.empty() && (!rule_.in_dsinks || rule_.in_dsinks(b)))
          dsinks[index(h)] -= std::exp(right_.sinks[index(h)] - x.lse) * x.delta;
        dq.assign(dq.size(), 0.0);
        for (int j = 0; j < k_len; ++j) {
          x.j = j;
          x.p = row.p[index(j)];
          if (x.p == 0) continue;  // the row does not see the key
          x.keep = kept(h, q0 + i, j);
          x.dp = dot(d_out_i, &v[index(j * dv)], dv);
          x.slope = slope(dot(q_i, &k[index(j * d)], d));
          add(dq.data(), right_.softmax_scale * term(x, Grad::kDq), &k[index(j * d)], d);
          for (double& y : dq) y = rule_.round_sums ? round_to(p_.dtype, static_cast<float>(y)) : y;
          const int at = j * kv_heads + to;
          add(&dk_sum[index(at * d)], right_.softmax_scale * term(x, Grad::kDk), q_i, d);
          add(&dv_sum[index(at * dv)], term(x, Grad::kDv), d_out_i, dv);
        }
        for (int c = 0; c < d; ++c) view.set_dq(q0 + i, h, c, rule_.dq_factor * dq[index(c)]);
      }
    }
    for (int n = 0; n < k_len * kv_heads; ++n) {
      const int64_t token = k0 + n / kv_heads;
      for (int c = 0; c < d; ++c)
        view.set_dk(token, n % kv_heads, c, rule_.dk_factor * dk_sum[index(n * d + c)]);
      for (int c = 0; c < dv; ++c) view.set_dv(token, n % kv_heads, c, dv_sum[index(n * dv + c)]);
    }
  }

  /// What dropout multiplies a weight by.
  double kept(int head, int64_t token, int j) const {
    const float p = right_.p_dropout;
    if (!(p > 0)) return 1;
    const bool keeps =
        dropout_keeps(p_.dropout_seed, p_.dropout_offset, head, token, j, dropout_threshold(p));
    return keeps ? static_cast<double>(dropout_scale(p)) : 0.0;
  }
  /// The derivative of the softcap.
  double slope(double qk) const {
    if (!(right_.softcap > 0)) return 1;
    const double tanh = std::tanh(right_.softmax_scale * qk / right_.softcap);
    return 1 - tanh * tanh;
  }
  double term(const GradPair& x, Grad of) const { return rule_.term ? rule_.term(x, of) : right_term(x, of); }

  const AttentionBackwardParams& p_;
  const HostView in_, d_out_;
  const reference::Problem right_;
  const BackwardRule& rule_;
};

}  // namespace

double ds_of(const GradPair& x, double delta) { return x.p * (x.keep * x.dp - delta) * x.slope; }

double right_term(const GradPair& x, Grad of) { return of == Grad::kDv ? x.keep * x.p : ds_of(x, x.delta); }

void GradView::set_dq(int64_t token, int head, int channel, double x) {
  set(p->dtype, dq, token * p->dq_stride_token + head * p->dq_stride_head + channel, x);
}
void GradView::set_dk(int64_t token, int head, int channel, double x) {
  set(p->dtype, dk, token * p->dk_stride_token + head * p->dk_stride_head + channel, x);
}
void GradView::set_dv(int64_t token, int head, int channel, double x) {
  set(p->dtype, dv, token * p->dv_stride_token + head * p->dv_stride_head + channel, x);
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
    const HostBackward host(t, op.attention_backward, rule);
    return with_gradients([&](GradView& view) { host.write(view); })(t, op);
  };
}

Tamper::Fault with_backward(const std::function<void(Tamper&, AttentionBackwardParams&)>& change) {
  return changed<&OpParams::attention_backward>(change);
}

}  // namespace attnbench
