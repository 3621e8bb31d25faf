#include <algorithm>
#include <cmath>

#include "reference/backward_tiles.h"

namespace attnbench::reference {
namespace {

using Eigen::ArrayXd;
using Eigen::Index;
using Eigen::Map;

constexpr double kScoreRange = 28.0;  ///< as in tile.cpp: lower scores have no effect on a float result

void at_least(RowMajor<double>& matrix, Index rows, Index cols) {
  if (matrix.rows() < rows || matrix.cols() != cols) matrix.resize(std::max(rows, matrix.rows()), cols);
}

void at_least(Eigen::VectorXd& vector, Index size) {
  if (vector.size() < size) vector.resize(size);
}

std::span<const double> view(const RowMajor<double>& m, int64_t rows) {
  return {m.data(), static_cast<size_t>(rows * m.cols())};
}

}  // namespace

void RowPass::reserve(int64_t rows, int64_t keys) {
  const Index d = problem_.head_dim, dv = problem_.value_dim();
  num_rows_ = rows;
  stride_ = (keys + 7) / 8 * 8;
  for (Eigen::VectorXd* strip : {&p_, &dp_}) at_least(*strip, rows * stride_);
  if (problem_.p_dropout > 0) at_least(kept_, rows * stride_);
  if (problem_.softcap > 0) at_least(slope_, rows * stride_);
  for (Eigen::VectorXd* norm : {&key_norm_, &value_norm_}) at_least(*norm, stride_);
  for (Eigen::VectorXd* sum : {&few_, &sum_}) {
    at_least(*sum, rows);
    sum->head(rows).setZero();
  }
  at_least(q_, rows, d);
  at_least(d_out_, rows, dv);
  at_least(k_, kMaxBlockKeys, d);
  at_least(v_, kMaxBlockKeys, dv);
  at_least(o_, rows, dv);
  o_.topRows(rows).setZero();
  for (RowMajor<double>* m : {&ds_, &cp_, &x_, &w_}) at_least(*m, rows, kMaxBlockKeys);
  for (RowMajor<double>* m : {&dq_, &variance_, &projection_}) {
    at_least(*m, rows, d);
    m->topRows(rows).setZero();
  }
  facts_.assign(static_cast<size_t>(rows), {});
  row_errors_.assign(static_cast<size_t>(rows), {});
}

void RowPass::load_rows(const RowId* rows) {
  for (int64_t r = 0; r < num_rows_;) {
    int64_t n = 1;
    while (r + n < num_rows_ && rows[r + n].head == rows[r].head && rows[r + n].pos == rows[r].pos + n) ++n;
    const auto end = static_cast<int>(rows[r].pos + n);
    inputs_.load_q(rows[r].seq, rows[r].head, rows[r].pos, end, q_.row(r).data());
    inputs_.load_d_out(rows[r].seq, rows[r].head, rows[r].pos, end, d_out_.row(r).data());
    r += n;
  }
  q_.topRows(num_rows_) *= problem_.softmax_scale;
}

// q.k and dO.v of every row and key.
void RowPass::multiply(int seq, int kv_head, int64_t key_begin) {
  using Strip = Map<RowMajor<double>, Eigen::Unaligned, Eigen::OuterStride<>>;
  Strip scores(p_.data(), num_rows_, stride_, Eigen::OuterStride<>(stride_));
  Strip dp(dp_.data(), num_rows_, stride_, Eigen::OuterStride<>(stride_));
  for (const KeyBlock& b : blocks_) {
    const Index n = b.end - b.begin, at = b.begin - key_begin, rows = b.last - b.first;
    inputs_.load_k(seq, kv_head, static_cast<int>(b.begin), static_cast<int>(b.end), k_.data());
    inputs_.load_v(seq, kv_head, static_cast<int>(b.begin), static_cast<int>(b.end), v_.data());
    key_norm_.segment(at, n) = k_.topRows(n).rowwise().norm();
    value_norm_.segment(at, n) = v_.topRows(n).rowwise().norm();
    scores.block(b.first, at, rows, n).noalias() = q_.middleRows(b.first, rows) * k_.topRows(n).transpose();
    dp.block(b.first, at, rows, n).noalias() = d_out_.middleRows(b.first, rows) * v_.topRows(n).transpose();
  }
}

// Turns scores into p, and multiplies dP by what dropout keeps.
void RowPass::weigh(const RowId* rows, const KeyRange* visible, const KeyRange& keys) {
  const double cap = problem_.softcap;
  for (int64_t r = 0; r < num_rows_; ++r) {
    const int64_t begin = visible[r].begin, n = visible[r].end - begin;
    RowFacts& f = facts_[static_cast<size_t>(r)];
    f.keys = n;
    double* row = row_of(p_, r, keys.begin);
    Map<ArrayXd> s(row + begin, n);
    if (cap > 0.0) {
      s = 1.0 - 2.0 / ((s * (2.0 / cap)).exp() + 1.0);  // tanh
      Map<ArrayXd>(row_of(slope_, r, keys.begin) + begin, n) = 1.0 - s.square();
      s *= cap;
    }
    if (!problem_.alibi_slopes.empty()) terms_.add_alibi(rows[r], visible[r], row);
    const double top = s.maxCoeff(), lowest = s.minCoeff();
    const double sink = terms_.sink(rows[r].head);
    f.score_abs = std::max(std::abs(top), std::abs(std::max(lowest, top - kScoreRange)));
    if (sink >= top - kScoreRange) f.score_abs = std::max(f.score_abs, std::abs(sink));
    f.score_most = std::max(std::abs(top), std::abs(lowest));
    const double largest = std::max(top, sink);
    s = (s - largest).exp();
    const double sum = s.sum() + std::exp(sink - largest);
    s *= 1.0 / sum;
    f.lse = largest + std::log(sum);
    const int64_t at = begin - keys.begin;
    f.dot_norm = q_.row(r).norm() * key_norm_.segment(at, n).maxCoeff();  // q_ includes the scale
    Map<ArrayXd> dp(row_of(dp_, r, keys.begin) + begin, n);
    double most_kept = 1.0;
    if (problem_.p_dropout > 0) {
      double* kept = row_of(kept_, r, keys.begin);
      for (int64_t j = begin; j < begin + n; ++j) kept[j] = terms_.kept(rows[r], j);
      const Map<ArrayXd> factor(kept + begin, n);
      dp *= factor;
      most_kept = factor.maxCoeff();
    }
    f.dp_abs = dp.abs().maxCoeff();
    f.d_out_norm = d_out_.row(r).norm();
    f.dp_norm = most_kept * f.d_out_norm * value_norm_.segment(at, n).maxCoeff();
  }
}

// o, which the facts need.
void RowPass::add_outputs(int seq, int kv_head, const KeyRange* visible, int64_t key_begin) {
  for (const KeyBlock& b : blocks_) {
    const Index n = b.end - b.begin, rows = b.last - b.first;
    inputs_.load_v(seq, kv_head, static_cast<int>(b.begin), static_cast<int>(b.end), v_.data());
    auto w = w_.block(0, 0, rows, n);
    w.setZero();
    for (int64_t r = b.first; r < b.last; ++r) {
      const int64_t lo = std::max(visible[r].begin, b.begin), hi = std::min(visible[r].end, b.end);
      if (lo >= hi) continue;
      auto out = w.row(r - b.first).segment(lo - b.begin, hi - lo).array();
      out = Map<ArrayXd>(row_of(p_, r, key_begin) + lo, hi - lo).transpose();
      if (problem_.p_dropout > 0) out *= Map<ArrayXd>(row_of(kept_, r, key_begin) + lo, hi - lo).transpose();
    }
    o_.middleRows(b.first, rows).noalias() += w * v_.topRows(n);
  }
}

void RowPass::end_facts(const KeyRange* visible, int64_t key_begin) {
  for (int64_t r = 0; r < num_rows_; ++r) {
    RowFacts& f = facts_[static_cast<size_t>(r)];
    const auto terms = o_.row(r).cwiseProduct(d_out_.row(r));
    f.delta = terms.sum();
    f.out_terms = terms.squaredNorm();
    const int64_t begin = visible[r].begin, n = visible[r].end - begin;
    const Map<ArrayXd> p(row_of(p_, r, key_begin) + begin, n), dp(row_of(dp_, r, key_begin) + begin, n);
    f.weight_terms = (p * (dp - f.delta)).square().sum();
    row_errors_[static_cast<size_t>(r)] = errors_(f);
  }
}

// dS, c p and the variance of dS in the block, 0 where a row does not see a key.
void RowPass::find_variances(const KeyBlock& b, const KeyRange* visible, int64_t key_begin) {
  const Index n = b.end - b.begin;
  for (RowMajor<double>* m : {&ds_, &cp_, &x_}) m->block(0, 0, b.last - b.first, n).setZero();
  for (int64_t r = b.first; r < b.last; ++r) {
    const int64_t lo = std::max(visible[r].begin, b.begin), hi = std::min(visible[r].end, b.end);
    if (lo >= hi) continue;
    const Index size = hi - lo;
    const PairErrors& e = row_errors_[static_cast<size_t>(r)];
    const auto part = [&](RowMajor<double>& m) { return Map<ArrayXd>(&m(r - b.first, lo - b.begin), size); };
    const Map<ArrayXd> p(row_of(p_, r, key_begin) + lo, size), dp(row_of(dp_, r, key_begin) + lo, size);
    auto ds = part(ds_), cp = part(cp_), x = part(x_);
    ds = p * (dp - facts_[static_cast<size_t>(r)].delta);
    cp = p;
    x = e.ds_spacing;
    if (problem_.softcap > 0) {
      const Map<ArrayXd> c(row_of(slope_, r, key_begin) + lo, size);
      x += e.capped * ds.square();
      ds *= c;
      cp *= c;
    }
    x += e.dq_relative * ds.square() + e.dq_absolute * cp.square();
  }
}

void RowPass::add_gradients(int seq, int kv_head, const KeyRange* visible, int64_t key_begin) {
  const double scale = problem_.softmax_scale;
  for (const KeyBlock& b : blocks_) {
    const Index n = b.end - b.begin, rows = b.last - b.first;
    inputs_.load_k(seq, kv_head, static_cast<int>(b.begin), static_cast<int>(b.end), k_.data());
    find_variances(b, visible, key_begin);
    const auto x = x_.block(0, 0, rows, n);
    auto k = k_.topRows(n);
    k *= scale;
    dq_.middleRows(b.first, rows).noalias() += ds_.block(0, 0, rows, n) * k;
    projection_.middleRows(b.first, rows).noalias() += cp_.block(0, 0, rows, n) * k;
    k = k.cwiseAbs2();
    variance_.middleRows(b.first, rows).noalias() += x * k;
    const Eigen::RowVectorXd norm2 = k.rowwise().sum().transpose();
    for (Index r = 0; r < rows; ++r) {
      const auto parts = x.row(r).cwiseProduct(norm2);
      sum_[b.first + r] += parts.sum();
      few_[b.first + r] += parts.squaredNorm();
    }
  }
}

QueryGrads RowPass::compute(const Plan& plan, const Tile& tile, bool gradients) {
  const RowId* rows = plan.rows.data() + tile.first;
  const KeyRange* visible = plan.visible.data() + tile.first;
  const int seq = rows[0].seq;
  const int kv_head = rows[0].head / (problem_.num_heads_q / problem_.num_heads_kv);
  reserve(tile.last - tile.first, tile.keys.end - tile.keys.begin);
  if (tile.keys.empty()) {
    for (int64_t r = 0; r < num_rows_; ++r) facts_[static_cast<size_t>(r)].lse = terms_.sink(rows[r].head);
  } else {
    cut_keys({visible, static_cast<size_t>(num_rows_)}, tile.keys, blocks_);
    load_rows(rows);
    multiply(seq, kv_head, tile.keys.begin);
    weigh(rows, visible, tile.keys);
    add_outputs(seq, kv_head, visible, tile.keys.begin);
    end_facts(visible, tile.keys.begin);
    if (gradients) add_gradients(seq, kv_head, visible, tile.keys.begin);
  }
  for (int64_t r = 0; r < num_rows_; ++r) few_[r] = sum_[r] > 0 ? few_[r] / (sum_[r] * sum_[r]) : 0;
  QueryGrads out;
  out.rows = {rows, static_cast<size_t>(num_rows_)};
  out.facts = facts_;
  if (!gradients) return out;
  out.dq = view(dq_, num_rows_);
  out.variance = view(variance_, num_rows_);
  out.projection = view(projection_, num_rows_);
  out.few = {few_.data(), static_cast<size_t>(num_rows_)};
  return out;
}

}  // namespace attnbench::reference
