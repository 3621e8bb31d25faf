#include "harness/selftest/host_backward.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "harness/cases/visible_keys.h"
#include "kernels/contract/dropout.h"

namespace attnbench {
namespace {

std::size_t index(int64_t i) { return static_cast<std::size_t>(i); }

int64_t size_in_bytes(int64_t elements, DType t) { return elements * static_cast<int64_t>(dtype_size(t)); }

void set(DType t, std::vector<unsigned char>& to, int64_t at, double x) {
  store_float(t, to.data(), at, static_cast<float>(x));
}

/// The inputs of a launch, copied to the host.
class Inputs {
 public:
  Inputs(Tamper& t, const AttentionBackwardParams& p) : p_(p) {
    const auto read = [&](const void* from, int64_t rows, int64_t stride) {
      return t.read<unsigned char>(from, size_in_bytes(rows * stride, p.dtype));
    };
    q_ = read(p.q, p.total_q, p.q_stride_token);
    k_ = read(p.k, p.total_k, p.k_stride_token);
    v_ = read(p.v, p.total_k, p.v_stride_token);
    out_ = read(p.out, p.total_q, p.out_stride_token);
    d_out_ = read(p.d_out, p.total_q, p.d_out_stride_token);
    lse_ = t.read<float>(p.lse, p.num_heads_q * p.lse_stride_head);
    if (p.alibi_slopes)
      slopes_ = t.read<float>(p.alibi_slopes,
                              p.alibi_stride_batch ? p.batch * p.alibi_stride_batch : p.num_heads_q);
    if (p.sinks) sinks_ = t.read<float>(p.sinks, p.num_heads_q);
  }

  std::vector<double> q(int64_t token, int head) const {
    return row(q_, token * p_.q_stride_token + head * p_.q_stride_head, p_.head_dim);
  }
  std::vector<double> k(int64_t token, int head) const {
    return row(k_, token * p_.k_stride_token + head * p_.k_stride_head, p_.head_dim);
  }
  std::vector<double> v(int64_t token, int head) const {
    return row(v_, token * p_.v_stride_token + head * p_.v_stride_head, p_.head_dim_v);
  }
  std::vector<double> out(int64_t token, int head) const {
    return row(out_, token * p_.out_stride_token + head * p_.out_stride_head, p_.head_dim_v);
  }
  std::vector<double> d_out(int64_t token, int head) const {
    return row(d_out_, token * p_.d_out_stride_token + head * p_.d_out_stride_head, p_.head_dim_v);
  }
  double lse(int64_t token, int head) const {
    return static_cast<double>(lse_[index(head * p_.lse_stride_head + token)]);
  }
  double slope(int seq, int head) const {
    return slopes_.empty() ? 0.0 : static_cast<double>(slopes_[index(seq * p_.alibi_stride_batch + head)]);
  }
  double sink(int head) const { return static_cast<double>(sinks_[index(head)]); }

 private:
  std::vector<double> row(const std::vector<unsigned char>& from, int64_t at, int dim) const {
    std::vector<double> out;
    for (int c = 0; c < dim; ++c)
      out.push_back(static_cast<double>(load_float(p_.dtype, from.data(), at + c)));
    return out;
  }
  const AttentionBackwardParams& p_;
  std::vector<unsigned char> q_, k_, v_, out_, d_out_;
  std::vector<float> lse_, slopes_, sinks_;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t c = 0; c < a.size(); ++c) sum += a[c] * b[c];
  return sum;
}

void add(std::vector<double>& to, double factor, const std::vector<double>& x) {
  for (std::size_t c = 0; c < to.size(); ++c) to[c] += factor * x[c];
}

/// Computes the gradients of one launch by a rule.
class HostBackward {
 public:
  HostBackward(const AttentionBackwardParams& p, const Inputs& in, const BackwardRule& rule, GradView& view)
      : p_(p), in_(in), rule_(rule), view_(view), dsinks_(view.dsinks.size()) {}

  void run() {
    for (int b = 0; b < p_.batch; ++b) sequence(b);
    for (std::size_t h = 0; h < dsinks_.size(); ++h) {
      view_.dsinks[h] =
          static_cast<float>(rule_.dsink ? rule_.dsink(static_cast<int>(h), dsinks_[h]) : dsinks_[h]);
    }
  }

 private:
  using Rows = std::vector<std::vector<double>>;

  void sequence(int b) {
    const int64_t q0 = view_.cu_q[index(b)], k0 = view_.cu_k[index(b)];
    const int q_len = static_cast<int>(view_.cu_q[index(b + 1)] - q0),
              k_len = static_cast<int>(view_.cu_k[index(b + 1)] - k0);
    const int kv_heads = p_.num_heads_kv, group = p_.num_heads_q / kv_heads;
    Rows dk(index(k_len * kv_heads), std::vector<double>(index(p_.head_dim)));
    Rows dv(index(k_len * kv_heads), std::vector<double>(index(p_.head_dim_v)));
    for (int h = 0; h < p_.num_heads_q; ++h) {
      const int to = rule_.kv_head ? rule_.kv_head(p_, h) : h / group;
      Rows k, v;
      for (int j = 0; j < k_len; ++j) {
        k.push_back(in_.k(k0 + j, h / group));
        v.push_back(in_.v(k0 + j, h / group));
      }
      for (int i = 0; i < q_len; ++i) {
        const auto q = in_.q(q0 + i, h), d_out = in_.d_out(q0 + i, h);
        GradPair pair{.seq = b, .i = i, .head = h, .q_len = q_len, .k_len = k_len, .group = group};
        pair.lse = in_.lse(q0 + i, h);
        pair.delta = dot(in_.out(q0 + i, h), d_out);
        if (!dsinks_.empty() && (!rule_.in_dsinks || rule_.in_dsinks(p_, b)))
          dsinks_[index(h)] -= std::exp(in_.sink(h) - pair.lse) * pair.delta;
        std::vector<double> dq(index(p_.head_dim));
        for (int j = 0; j < k_len; ++j) {
          pair.j = j;
          fill(pair, q0 + i, q, d_out, k[index(j)], v[index(j)]);
          if (visible(pair, Grad::kDq)) add(dq, p_.softmax_scale * term(pair, Grad::kDq), k[index(j)]);
          if (rule_.round_sums) {
            for (double& x : dq) x = static_cast<double>(round_to(p_.dtype, static_cast<float>(x)));
          }
          const auto at = index(int64_t{j} * kv_heads + to);
          if (visible(pair, Grad::kDk)) add(dk[at], p_.softmax_scale * term(pair, Grad::kDk), q);
          if (visible(pair, Grad::kDv)) add(dv[at], term(pair, Grad::kDv), d_out);
        }
        for (int c = 0; c < p_.head_dim; ++c) view_.set_dq(q0 + i, h, c, rule_.dq_factor * dq[index(c)]);
      }
    }
    for (int j = 0; j < k_len; ++j) {
      for (int h = 0; h < kv_heads; ++h) {
        const auto at = index(int64_t{j} * kv_heads + h);
        for (int c = 0; c < p_.head_dim; ++c) view_.set_dk(k0 + j, h, c, rule_.dk_factor * dk[at][index(c)]);
        for (int c = 0; c < p_.head_dim_v; ++c) view_.set_dv(k0 + j, h, c, dv[at][index(c)]);
      }
    }
  }

  void fill(GradPair& x, int64_t token, const std::vector<double>& q, const std::vector<double>& d_out,
            const std::vector<double>& k, const std::vector<double>& v) const {
    const double cap = static_cast<double>(p_.softcap);
    x.t = static_cast<double>(p_.softmax_scale) * dot(q, k);
    x.score = cap > 0 ? cap * std::tanh(x.t / cap) : x.t;
    x.slope = cap > 0 ? 1 - std::tanh(x.t / cap) * std::tanh(x.t / cap) : 1;
    const double distance = static_cast<double>(std::abs(x.diag() - x.j));
    x.score -= in_.slope(x.seq, x.head) * (p_.alibi_sqrt ? std::sqrt(distance) : distance);
    x.dp = dot(d_out, v);
    if (p_.features & kDropout) {
      const bool kept = dropout_keeps(p_.dropout_seed, p_.dropout_offset, x.head, token, x.j,
                                      dropout_threshold(p_.p_dropout));
      x.keep = kept ? static_cast<double>(dropout_scale(p_.p_dropout)) : 0.0;
    }
    x.p = std::exp(x.score - x.lse);
    if (rule_.p) x.p = rule_.p(p_, x);
  }

  bool visible(const GradPair& x, Grad of) const {
    if (rule_.visible) return rule_.visible(p_, x, of);
    return visible_keys(mask_of_launch(p_), x.q_len, x.k_len, x.i).contains(x.j);
  }
  double term(const GradPair& x, Grad of) const {
    if (rule_.term) return rule_.term(x, of);
    return of == Grad::kDv ? x.keep * x.p : ds_of(x);
  }

  const AttentionBackwardParams& p_;
  const Inputs& in_;
  const BackwardRule& rule_;
  GradView& view_;
  std::vector<double> dsinks_;
};

}  // namespace

double ds_of(const GradPair& x, double delta) { return x.p * (x.keep * x.dp - delta) * x.slope; }

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
  return [change](Tamper& t, const OpParams& op) {
    const KernelStatus s = t.launch(op);
    const AttentionBackwardParams& p = op.attention_backward;
    if (s != KernelStatus::kOk || p.batch == 0) return s;
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
    return s;
  };
}

Tamper::Fault with_backward_rule(BackwardRule rule) {
  return [rule](Tamper& t, const OpParams& op) {
    const Inputs inputs(t, op.attention_backward);
    return with_gradients([&](GradView& view) { HostBackward(*view.p, inputs, rule, view).run(); })(t, op);
  };
}

Tamper::Fault with_backward(const std::function<void(Tamper&, AttentionBackwardParams&)>& change) {
  return [change](Tamper& t, const OpParams& op) {
    OpParams wrong = op;
    change(t, wrong.attention_backward);
    return t.launch(wrong);
  };
}

}  // namespace attnbench
