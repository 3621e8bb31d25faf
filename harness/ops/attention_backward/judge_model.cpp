#include "harness/ops/attention_backward/judge_model.h"

#include <algorithm>
#include <cmath>

#include "harness/tensors/plan.h"

namespace attnbench {
namespace {

double square(double x) { return x * x; }

/// O and LSE come from a kernel whose arithmetic is float32, with exp2 as good as a GPU's.
constexpr Numerics kForward{DType::kFp32, DType::kFp32, 0x1p-22};

double keep_scale(const CaseParams& p) { return p.dropout > 0 ? 1.0 / (1.0 - p.dropout) : 1.0; }

}  // namespace

BackwardModel::BackwardModel(const Case& c, const Numerics& n)
    : u_out_(unit_roundoff(c.params.dtype)),
      u_p_(std::max(unit_roundoff(n.p_type), n.exp_rel_err)),
      u_acc_(unit_roundoff(n.acc_type)),
      exp_err_(n.exp_rel_err),
      out_spacing_(least_spacing(c.params.dtype)),
      p_spacing_(least_spacing(n.p_type)),
      softcap_(c.params.softcap),
      keep_(keep_scale(c.params)),
      score_roundings_(std::sqrt(4.0 + c.params.head_dim / 9.0)),
      dp_roundings_(std::sqrt(4.0 + c.params.dim_v() / 9.0)),
      most_rows_(0),
      group_(static_cast<double>(c.params.num_heads_q) / c.params.num_heads_kv),
      forward_(kForward, c.params.dtype, c.params.head_dim, c.params.softcap, keep_scale(c.params),
               c.params.dim_v()) {
  for (const SeqLen& s : c.params.seqs) most_rows_ = std::max(most_rows_, s.q * group_);
  // The only head of a group is rounded to the output's type alone, and fp32 is the type of sums.
  if (group_ > 1 && n.head_grad_type != DType::kFp32) {
    u_head_ = unit_roundoff(n.head_grad_type);
    head_spacing_ = std::max(least_spacing(n.head_grad_type), kFlushed);
  }
}

double BackwardModel::weight_error(double dot_norm, double score) const {
  // As in the forward pass (error_model.cpp), and the exponent's argument takes one rounding more, of the LSE.
  const double ds = u_acc_ * (dot_norm + score_roundings_ * score) + softcap_ * std::max(exp_err_, u_acc_);
  const double far = std::min(kMaxZ * ds, 300.0);
  return std::expm1(far) / kMaxZ;
}

double BackwardModel::product_error(double norm, double value) const {
  return u_acc_ * (norm + dp_roundings_ * std::abs(value));
}

reference::PairErrors BackwardModel::pair_errors(const reference::RowFacts& row) const {
  const RowErrors common = row_errors(row);
  const double rounding = square(u_p_) / 3 + 4 * square(u_acc_);
  // Under a causal mask the first terms of a sum may be the largest, and every later rounding is relative to
  // them: no average over the way, as in the forward pass.
  const auto sum = [this](double terms) { return square(u_acc_) * terms / 3; };
  const double dp =
      square(product_error(row.dp_norm, row.dp_abs)) + square(u_acc_ * (row.dp_abs + std::abs(row.delta)));
  reference::PairErrors e;
  e.dq_relative =
      rounding + square(weight_error(row.dot_norm, row.score_abs)) + sum(static_cast<double>(row.keys));
  e.key_relative =
      rounding + square(weight_error(row.dot_norm, row.score_most)) + common.lse + sum(most_rows_);
  e.dq_absolute = dp;
  e.key_absolute = dp + common.delta;
  if (softcap_ > 0) e.capped = square(2 * std::max(exp_err_, u_acc_) + u_acc_);
  // A P that is flushed takes the whole of its dS along.
  const double spacing = square(p_spacing_) / 12;
  e.ds_spacing = spacing + square(kFlushed) * (1 + square(row.dp_abs + std::abs(row.delta))) / 3;
  e.w_spacing = square(keep_) * (spacing + square(kFlushed) / 3);
  return e;
}

RowErrors BackwardModel::row_errors(const reference::RowFacts& row) const {
  if (row.keys == 0) return {};
  RowMoments m;
  m.lse = row.lse;
  m.score_abs = row.score_abs;
  m.dot_norm = row.dot_norm;
  m.keys = row.keys;
  // The forward kernel rounds O, and errs in each weight; this kernel sums O.dO.
  const double u = unit_roundoff(kForward.acc_type);
  const double logit =
      u * (row.dot_norm + score_roundings_ * row.score_abs) + softcap_ * kForward.exp_rel_err;
  const double weight = square(kForward.exp_rel_err) / 3 +
                        square(std::expm1(std::min(kMaxZ * logit, 300.0)) / kMaxZ) +
                        square(u) * static_cast<double>(row.keys) / 2;
  RowErrors e;
  e.delta = square(u_out_) / 3 * row.out_terms + square(out_spacing_ * row.d_out_norm) / 12 +
            weight * row.weight_terms + square(product_error(row.dp_norm, row.delta)) +
            square(u) * static_cast<double>(row.keys) / 9 * square(row.delta);
  e.lse = square(forward_.sigma_lse(m)) + square(u_acc_ * (1 + std::abs(row.lse)));
  return e;
}

double BackwardModel::rounding(const GradTerms& t) const {
  const double once = square(u_out_ * t.value) / 3 + square(out_spacing_) / 12 + square(kFlushed) / 3;
  return once + square(u_head_) * t.heads / 3 + group_ * square(head_spacing_) / 12;
}

double BackwardModel::common(const GradTerms& t) const {
  return t.common.delta * square(t.projection) +
         (t.common.lse + square(u_acc_) * static_cast<double>(t.terms) / 3) * square(t.value);
}

double BackwardModel::sink_variance(const reference::RowFacts& row, double p_sink) const {
  const RowErrors e = row_errors(row);
  const double relative = e.lse + square(std::max(exp_err_, u_acc_)) + square(u_acc_ * (1 + row.score_abs));
  return square(p_sink) * (e.delta + relative * square(row.delta));
}

double BackwardModel::sink_sum_variance(double value, double squares, int64_t terms) const {
  const double n = static_cast<double>(terms);
  return square(u_acc_) * (n * (squares + square(value)) / 3 + square(value)) + square(kFlushed);
}

void SinkSum::add(const BackwardModel& model, const reference::RowFacts& row, float sink) {
  ++rows;
  if (row.keys == 0) return;
  const double p = std::exp(static_cast<double>(sink) - row.lse);
  const double term = p * row.delta;
  value -= term;
  squares += term * term;
  variance += model.sink_variance(row, p);
}

double SinkSum::sigma(const BackwardModel& model) const {
  return std::sqrt(variance + model.sink_sum_variance(value, squares, rows));
}

}  // namespace attnbench
