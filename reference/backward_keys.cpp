#include <algorithm>
#include <cmath>

#include "reference/backward_tiles.h"

namespace attnbench::reference {
namespace {

using Eigen::ArrayXd;
using Eigen::Index;
using Eigen::Map;

constexpr int64_t kChunkRows = 128;  ///< query rows that are multiplied with a tile of keys at once

std::span<const double> view(const RowMajor<double>& m) { return {m.data(), static_cast<size_t>(m.size())}; }
std::span<const double> view(const ArrayXd& a) { return {a.data(), static_cast<size_t>(a.size())}; }

}  // namespace

void KeyPass::reserve(std::span<const KeyId> keys) {
  const Index d = problem_.head_dim, dv = problem_.value_dim(), n = std::ssize(keys);
  q_.resize(kChunkRows, d);
  d_out_.resize(kChunkRows, dv);
  k_.resize(n, d);
  v_.resize(n, dv);
  for (RowMajor<double>* m : {&s_, &dp_, &dk_x_, &dv_x_}) m->resize(kChunkRows, n);
  for (RowMajor<double>* m : {&dk_, &dk_var_, &dk_heads_}) m->setZero(n, d);
  for (RowMajor<double>* m : {&dv_, &dv_var_, &dv_heads_}) m->setZero(n, dv);
  for (ArrayXd* a : {&dk_sum_, &dk_few_, &dv_sum_, &dv_few_}) a->setZero(n);
  rows_.assign(keys.size(), 0);
  for (Index i = 0; i < n;) {
    Index run = 1;
    while (i + run < n && keys[i + run].pos == keys[i].pos + run) ++run;
    const auto end = static_cast<int>(keys[i].pos + run);
    inputs_.load_k(keys[i].seq, keys[i].kv_head, keys[i].pos, end, k_.row(i).data());
    inputs_.load_v(keys[i].seq, keys[i].kv_head, keys[i].pos, end, v_.row(i).data());
    i += run;
  }
}

// dS, w and their variances for the rows of the chunk; 0 where a row does not see a key.
void KeyPass::find_terms(std::span<const KeyId> keys) {
  const double cap = problem_.softcap;
  for (size_t r = 0; r < seen_.size(); ++r) {
    const auto [row, lo, hi] = seen_[r];
    const RowTable::Row& known = table_.row(row);
    const PairErrors& e = known.errors;
    const auto at = static_cast<Index>(r);
    for (RowMajor<double>* m : {&s_, &dp_, &dk_x_, &dv_x_}) {
      m->row(at).head(lo).setZero();
      m->row(at).tail(std::ssize(keys) - hi).setZero();
    }
    const Index n = hi - lo;
    const auto part = [&, first = lo](RowMajor<double>& m) { return Map<ArrayXd>(&m(at, first), n); };
    auto s = part(s_), dp = part(dp_), dk_x = part(dk_x_), dv_x = part(dv_x_);
    ArrayXd c;
    if (cap > 0.0) {
      s = 1.0 - 2.0 / ((s * (2.0 / cap)).exp() + 1.0);
      c = 1.0 - s.square();
      s *= cap;
    }
    if (!problem_.alibi_slopes.empty()) {
      for (Index j = 0; j < n; ++j) s[j] -= terms_.alibi(row, keys[static_cast<size_t>(lo + j)].pos);
    }
    const ArrayXd p = (s - known.facts.lse).exp();
    ArrayXd w = p;
    if (problem_.p_dropout > 0) {
      for (Index j = 0; j < n; ++j) {
        const double kept = terms_.kept(row, keys[static_cast<size_t>(lo + j)].pos);
        dp[j] *= kept;
        w[j] *= kept;
      }
    }
    s = p * (dp - known.facts.delta);
    dk_x = e.ds_spacing;
    if (cap > 0.0) {
      dk_x += e.capped * s.square();
      s *= c;
      dk_x += e.key_relative * s.square() + e.key_absolute * (p * c).square();
    } else {
      dk_x += e.key_relative * s.square() + e.key_absolute * p.square();
    }
    dp = w;
    dv_x = e.key_relative * w.square() + e.w_spacing;
    for (Index j = lo; j < hi; ++j) ++rows_[static_cast<size_t>(j)];
  }
}

// Adds the rows of the chunk to the sums of all keys of the tile.
void KeyPass::add_rows(std::span<const KeyId> keys) {
  const auto rows = static_cast<Index>(seen_.size());
  if (rows == 0) return;
  for (Index r = 0; r < rows;) {
    const RowId& first = seen_[static_cast<size_t>(r)].row;
    Index n = 1;
    while (r + n < rows && seen_[static_cast<size_t>(r + n)].row.pos == first.pos + n) ++n;
    const auto end = static_cast<int>(first.pos + n);
    inputs_.load_q(first.seq, first.head, first.pos, end, q_.row(r).data());
    inputs_.load_d_out(first.seq, first.head, first.pos, end, d_out_.row(r).data());
    r += n;
  }
  auto q = q_.topRows(rows);
  auto d_out = d_out_.topRows(rows);
  q *= problem_.softmax_scale;
  s_.topRows(rows).noalias() = q * k_.transpose();
  dp_.topRows(rows).noalias() = d_out * v_.transpose();
  find_terms(keys);
  dk_head_.noalias() += s_.topRows(rows).transpose() * q;
  dv_head_.noalias() += dp_.topRows(rows).transpose() * d_out;
  q = q.cwiseAbs2();
  d_out = d_out.cwiseAbs2();
  dk_var_.noalias() += dk_x_.topRows(rows).transpose() * q;
  dv_var_.noalias() += dv_x_.topRows(rows).transpose() * d_out;
  q_norm_ = q.rowwise().sum();
  d_out_norm_ = d_out.rowwise().sum();
  for (Index r = 0; r < rows; ++r) {
    const ArrayXd dk_part = dk_x_.row(r).transpose().array() * q_norm_[r];
    const ArrayXd dv_part = dv_x_.row(r).transpose().array() * d_out_norm_[r];
    dk_sum_ += dk_part;
    dk_few_ += dk_part.square();
    dv_sum_ += dv_part;
    dv_few_ += dv_part.square();
  }
  seen_.clear();
}

KeyGrads KeyPass::compute(std::span<const KeyId> keys) {
  reserve(keys);
  const int seq = keys[0].seq;
  const int ratio = problem_.num_heads_q / problem_.num_heads_kv;
  const auto position_before = [](const KeyId& key, int64_t pos) { return key.pos < pos; };
  seen_.clear();
  for (int head = keys[0].kv_head * ratio; head < (keys[0].kv_head + 1) * ratio; ++head) {
    dk_head_.setZero(dk_.rows(), dk_.cols());
    dv_head_.setZero(dv_.rows(), dv_.cols());
    for (int pos = 0; pos < problem_.q_lens[seq]; ++pos) {
      const KeyRange range = visible_keys(problem_, seq, pos);
      if (range.empty() || range.begin > keys.back().pos || range.end <= keys.front().pos) continue;
      const auto lo = std::lower_bound(keys.begin(), keys.end(), range.begin, position_before) - keys.begin();
      const auto hi = std::lower_bound(keys.begin(), keys.end(), range.end, position_before) - keys.begin();
      if (lo >= hi) continue;
      seen_.push_back({{seq, pos, head}, lo, hi});
      if (std::ssize(seen_) == kChunkRows) add_rows(keys);
    }
    add_rows(keys);
    dk_ += dk_head_;
    dv_ += dv_head_;
    dk_heads_ += dk_head_.cwiseAbs2();
    dv_heads_ += dv_head_.cwiseAbs2();
  }
  const auto share = [](ArrayXd& few, const ArrayXd& sum) {
    few = (sum > 0).select(few / sum.square(), 0.0);
  };
  share(dk_few_, dk_sum_);
  share(dv_few_, dv_sum_);
  return {keys,          view(dk_),       view(dk_var_), view(dk_heads_), view(dv_),
          view(dv_var_), view(dv_heads_), view(dk_few_), view(dv_few_),   rows_};
}

}  // namespace attnbench::reference
