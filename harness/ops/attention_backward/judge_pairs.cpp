#include "harness/ops/attention_backward/judge_pairs.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/contract/dropout.h"

namespace attnbench {
namespace {

std::size_t at_of(int64_t i) { return static_cast<std::size_t>(i); }

double dot(const double* a, const double* b, int n) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += a[c] * b[c];
  return sum;
}

void add(std::vector<double>& to, double factor, const double* x) {
  for (std::size_t c = 0; c < to.size(); ++c) to[c] += factor * x[c];
}

}  // namespace

double ds_of(const GradPair& x, double delta) { return x.p * (x.keep * x.dp - delta) * x.slope; }

double right_term(const GradPair& x, Grad of) { return of == Grad::kDv ? x.keep * x.p : ds_of(x, x.delta); }

GradPairs::GradPairs(const reference::Problem& right, reference::Problem p_of,
                     const reference::BackwardInputs& inputs, int seq, int num_threads)
    : p_(right), seq_(seq), q_len_(right.q_lens[at_of(seq)]), k_len_(right.k_lens[at_of(seq)]) {
  const int d = p_.head_dim, dv = p_.value_dim(), group = p_.num_heads_q / p_.num_heads_kv;
  first_row_ = p_.q_begins.empty() ? std::accumulate(p_.q_lens.begin(), p_.q_lens.begin() + seq, int64_t{0})
                                   : p_.q_begins[at_of(seq)];
  std::vector<std::vector<double>> v;
  for (int h = 0; h < p_.num_heads_kv; ++h) {
    inputs.load_k(seq, h, 0, k_len_, k_.emplace_back(at_of(int64_t{k_len_} * d)).data());
    inputs.load_v(seq, h, 0, k_len_, v.emplace_back(at_of(int64_t{k_len_} * dv)).data());
  }
  std::vector<reference::RowId> ids;
  for (int i = 0; i < q_len_; ++i) {
    for (int h = 0; h < p_.num_heads_q; ++h) ids.push_back({seq, i, h});
  }
  rows_.resize(ids.size());
  p_of.probs = true;
  reference::attend(p_of, inputs, ids, num_threads, [&](const reference::RowBlock& b) {
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      const auto [_, pos, head] = b.rows[r];
      QueryRow& row = rows_[at_of(int64_t{pos} * p_.num_heads_q + head)];
      row.q.resize(at_of(d));
      row.d_out.resize(at_of(dv));
      inputs.load_q(seq, head, pos, pos + 1, row.q.data());
      inputs.load_d_out(seq, head, pos, pos + 1, row.d_out.data());
      row.lse = b.lse[r];
      row.delta = dot(&b.o[r * at_of(dv)], row.d_out.data(), dv);
      for (std::vector<double>* x : {&row.p, &row.dp, &row.slope}) x->assign(at_of(k_len_), 0.0);
      for (int64_t n = 0; n < b.key_count; ++n) {
        const std::size_t j = at_of(b.key_begin + n);
        if ((row.p[j] = b.probs[r * at_of(b.key_count) + at_of(n)]) == 0) continue;
        const std::size_t kv = at_of(head / group);
        row.dp[j] = dot(row.d_out.data(), &v[kv][j * at_of(dv)], dv);
        const double tanh =
            p_.softcap > 0
                ? std::tanh(p_.softmax_scale * dot(row.q.data(), &k_[kv][j * at_of(d)], d) / p_.softcap)
                : 0;
        row.slope[j] = 1 - tanh * tanh;
      }
    }
  });
}

GradPair GradPairs::pair(int pos, int head, int j) const {
  const int group = p_.num_heads_q / p_.num_heads_kv;
  const QueryRow& row = at(pos, head);
  GradPair x{.i = pos, .j = j, .head = head, .q_len = q_len_, .k_len = k_len_, .group = group};
  x.lse = row.lse;
  x.delta = row.delta;
  x.group_delta = at(pos, head / group * group).delta;
  x.p = row.p[at_of(j)];
  x.dp = row.dp[at_of(j)];
  x.slope = row.slope[at_of(j)];
  if (p_.p_dropout > 0) {
    const bool keeps = dropout_keeps(p_.dropout_seed, p_.dropout_offset, head, first_row_ + pos, j,
                                     dropout_threshold(p_.p_dropout));
    x.keep = keeps ? static_cast<double>(dropout_scale(p_.p_dropout)) : 0.0;
  }
  return x;
}

std::vector<double> GradPairs::row(const GradRule& rule, Grad of, int pos, int head) const {
  const int group = p_.num_heads_q / p_.num_heads_kv, d = p_.head_dim;
  const auto term = [&](int i, int h, int j) {
    const GradPair x = pair(i, h, j);
    const double t = x.p == 0    ? 0
                     : rule.term ? rule.term(x, of)
                                 : right_term(x, of);  // 0: the key is not seen
    return of == Grad::kDv ? t : p_.softmax_scale * t;
  };
  std::vector<double> sum(at_of(of == Grad::kDv ? p_.value_dim() : d), 0.0);
  if (of == Grad::kDq) {
    for (int j = 0; j < k_len_; ++j) {
      const double t = term(pos, head, j);
      if (t == 0) continue;
      add(sum, t, &k_[at_of(head / group)][at_of(int64_t{j} * d)]);
      for (double& x : sum) x = rule.round_sum ? rule.round_sum(x) : x;
    }
  }
  for (int h = 0; of != Grad::kDq && h < p_.num_heads_q; ++h) {
    if ((rule.kv_head ? rule.kv_head(h) : h / group) != head) continue;
    for (int i = 0; i < q_len_; ++i) {
      const double t = term(i, h, pos);
      if (t != 0) add(sum, t, of == Grad::kDv ? at(i, h).d_out.data() : at(i, h).q.data());
    }
  }
  const double factor = of == Grad::kDq ? rule.dq_factor : of == Grad::kDk ? rule.dk_factor : 1;
  for (double& x : sum) x *= factor;
  return sum;
}

double GradPairs::dsink(int pos, int head) const {
  const QueryRow& row = at(pos, head);
  return -std::exp(p_.sinks[at_of(head)] - row.lse) * row.delta;
}

}  // namespace attnbench
