#include "reference/tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/contract/dropout.h"

namespace attnbench::reference {
namespace {

using Eigen::Index;

constexpr int64_t kBlockKeys = kMaxBlockKeys;

// Squared weights below this are dropped from the moments, because float denormals are slow. Beside the row's
// largest, 1, they do not matter. But if the value of that key is 0, they are all of a channel; therefore
// finish() adds the most that they can be.
constexpr float kLeastWeight2 = 1e-30f;

// A key whose score is further below the row's largest than this has no effect on a float result: its weight
// is under 2^-40 of the largest. So the size of its score does not matter for rounding.
constexpr double kScoreRange = 28.0;

// Kept weights below this are not scaled, because 1 / x would exceed the range of double.
constexpr double kLeastKept = 1e-290;

template <typename T>
void at_least(RowMajor<T>& matrix, Index rows, Index cols) {
  if (matrix.rows() < rows || matrix.cols() != cols) matrix.resize(std::max(rows, matrix.rows()), cols);
}

void at_least(Eigen::VectorXd& vector, Index size) {
  if (vector.size() < size) vector.resize(size);
}

std::span<const double> view(const Eigen::VectorXd& v, int64_t n) {
  return {v.data(), static_cast<size_t>(n)};
}

std::span<const double> view(const RowMajor<double>& m, int64_t rows) {
  return {m.data(), static_cast<size_t>(rows * m.cols())};
}

}  // namespace

TileComputer::TileComputer(const Problem& problem, const Inputs& inputs)
    : problem_(problem), inputs_(inputs), terms_(problem) {}

RowBlock TileComputer::compute(const Plan& plan, const Tile& tile) {
  const RowId* rows = plan.rows.data() + tile.first;
  const KeyRange* visible = plan.visible.data() + tile.first;
  const int seq = rows[0].seq;
  const int kv_head = rows[0].head / (problem_.num_heads_q / problem_.num_heads_kv);
  reserve(tile.last - tile.first, tile.keys.end - tile.keys.begin);
  for (int64_t r = 0; r < num_rows_; ++r) keys_[r] = visible[r].end - visible[r].begin;
  if (tile.keys.empty()) {
    set_empty(rows);
  } else {
    cut_keys({visible, static_cast<size_t>(num_rows_)}, tile.keys, blocks_);
    load_queries(rows);
    score(seq, kv_head, tile.keys.begin);
    if (problem_.sees) find_seen(rows, visible, tile.keys);
    softmax(rows, visible, tile.keys);
    accumulate(seq, kv_head, visible, tile.keys.begin);
    finish();
  }
  RowBlock block;
  block.rows = {rows, static_cast<size_t>(num_rows_)};
  block.o = view(o_, num_rows_);
  block.a2 = view(a2_, num_rows_);
  block.v2 = view(b_, num_rows_);
  block.lse = view(lse_, num_rows_);
  block.vv = view(vv_, num_rows_);
  block.mean = view(mean_, num_rows_);
  block.w2 = view(w2_, num_rows_);
  block.w4 = view(w4_, num_rows_);
  block.p_max = view(p_max_, num_rows_);
  block.score_abs = view(score_abs_, num_rows_);
  block.dot_norm = view(dot_norm_, num_rows_);
  block.keys = {keys_.data(), static_cast<size_t>(num_rows_)};
  block.tilt = view(tilt_, num_tilts());
  block.tilt_lse = view(tilt_lse_, num_tilts());
  if (problem_.probs) {
    block.probs = probs_;
    block.key_begin = tile.keys.begin;
    block.key_count = tile.keys.end - tile.keys.begin;
  }
  return block;
}

void TileComputer::reserve(int64_t rows, int64_t keys) {
  const Index d = score_dim();
  const Index dv = problem_.value_dim();
  num_rows_ = rows;
  stride_ = (keys + 7) / 8 * 8;
  at_least(strip_, rows * stride_);
  at_least(key_norm_, stride_);
  at_least(q_, rows, d);
  at_least(k_, kBlockKeys, d);
  at_least(v_, kBlockKeys, dv);
  at_least(v_v2_, kBlockKeys, 2 * dv);
  at_least(prefix_, kBlockKeys + 1, 2 * dv);
  at_least(weight2_, rows, kBlockKeys);
  at_least(block_moment_, rows, 2 * dv);
  for (RowMajor<double>* m : {&o_, &a2_, &b_, &vv_, &mean_}) {
    at_least(*m, rows, dv);
    m->topRows(rows).setZero();
  }
  for (Eigen::VectorXd* v : {&inv_, &p2_, &w2_, &w4_, &variance_, &p_max_, &lse_, &score_abs_, &dot_norm_})
    at_least(*v, rows);
  at_least(tilted_, num_tilts() * stride_);
  tilted_.head(num_tilts() * stride_).setZero();
  at_least(tilt_, num_tilts(), dv);
  tilt_.topRows(num_tilts()).setZero();
  at_least(tilt_lse_, num_tilts());
  tilt_lse_.head(num_tilts()).setZero();
  w4_.head(rows).setZero();
  variance_.head(rows).setZero();
  keys_.resize(rows);
  if (problem_.probs) probs_.assign(static_cast<size_t>(rows * keys), 0.0);
}

void TileComputer::set_empty(const RowId* rows) {
  for (int64_t r = 0; r < num_rows_; ++r) lse_[r] = terms_.sink(rows[r].head);
  for (Eigen::VectorXd* v : {&w2_, &p_max_, &score_abs_, &dot_norm_}) v->head(num_rows_).setZero();
}

void TileComputer::load_queries(const RowId* rows) {
  for (int64_t r = 0; r < num_rows_;) {
    int64_t n = 1;
    while (r + n < num_rows_ && rows[r + n].head == rows[r].head && rows[r + n].pos == rows[r].pos + n) ++n;
    const int pos = rows[r].pos, end = static_cast<int>(pos + n);
    if (problem_.qv) {
      at_least(part_, n, problem_.head_dim);
      inputs_.load_q(rows[r].seq, rows[r].head, pos, end, part_.data());
      q_.block(r, 0, n, problem_.head_dim) = part_.topRows(n);
      at_least(part_, n, problem_.value_dim());
      inputs_.load_qv(rows[r].seq, rows[r].head, pos, end, part_.data());
      q_.block(r, problem_.head_dim, n, problem_.value_dim()) = part_.topRows(n);
    } else {
      inputs_.load_q(rows[r].seq, rows[r].head, pos, end, q_.row(r).data());
    }
    r += n;
  }
  q_.topRows(num_rows_) *= problem_.softmax_scale;
}

// Loads keys [begin, end) and, with qv, their values beside them.
void TileComputer::load_keys(int seq, int kv_head, int begin, int end) {
  if (!problem_.qv) return inputs_.load_k(seq, kv_head, begin, end, k_.data());
  const Index n = end - begin;
  at_least(part_, n, problem_.head_dim);
  inputs_.load_k(seq, kv_head, begin, end, part_.data());
  k_.topLeftCorner(n, problem_.head_dim) = part_.topRows(n);
  at_least(part_, n, problem_.value_dim());
  inputs_.load_v(seq, kv_head, begin, end, part_.data());
  k_.block(0, problem_.head_dim, n, problem_.value_dim()) = part_.topRows(n);
}

void TileComputer::score(int seq, int kv_head, int64_t key_begin) {
  for (const KeyBlock& block : blocks_) {
    const Index n = block.end - block.begin;
    const Index at = block.begin - key_begin;
    const Index rows = block.last - block.first;
    load_keys(seq, kv_head, static_cast<int>(block.begin), static_cast<int>(block.end));
    key_norm_.segment(at, n) = k_.topRows(n).rowwise().norm();
    scores().block(block.first, at, rows, n).noalias() =
        q_.middleRows(block.first, rows) * k_.topRows(n).transpose();
  }
}

// Asks Problem::sees for every key of the rows' intervals.
void TileComputer::find_seen(const RowId* rows, const KeyRange* visible, const KeyRange& keys) {
  at_least(seen_, num_rows_ * stride_);
  seen_.head(num_rows_ * stride_).setZero();
  for (int64_t r = 0; r < num_rows_; ++r) {
    double* seen = seen_.data() + r * stride_ - keys.begin;
    keys_[r] = 0;
    for (int64_t j = visible[r].begin; j < visible[r].end; ++j) {
      if (!problem_.sees(rows[r].seq, rows[r].pos, rows[r].head, j)) continue;
      seen[j] = 1.0;
      ++keys_[r];
    }
  }
}

double TileComputer::hide(int64_t r, const KeyRange& visible, const KeyRange& keys) {
  double* scores = strip_.data() + r * stride_ - keys.begin;
  double lowest = std::numeric_limits<double>::infinity();
  for (int64_t j = visible.begin; j < visible.end; ++j) {
    if (seen_[r * stride_ + j - keys.begin] == 0.0) {
      scores[j] = -std::numeric_limits<double>::infinity();
    } else {
      lowest = std::min(lowest, scores[j]);
    }
  }
  return lowest;
}

// The norm of the largest key that row r sees.
double TileComputer::largest_key(int64_t r, const KeyRange& visible, const KeyRange& keys) const {
  const auto norms = key_norm_.segment(visible.begin - keys.begin, visible.end - visible.begin);
  if (!problem_.sees) return norms.maxCoeff();
  return norms.cwiseProduct(seen_.segment(r * stride_ + visible.begin - keys.begin, norms.size())).maxCoeff();
}

// The results of a row of whose interval no key is seen.
void TileComputer::set_unseen(int64_t r, double sink) {
  for (Eigen::VectorXd* v : {&inv_, &p2_, &w2_, &p_max_, &score_abs_, &dot_norm_}) (*v)[r] = 0.0;
  lse_[r] = sink;
}

// Textbook softmax of each row over all its keys. The strip then holds e = exp(score - largest score), and
// zeros for keys of the row's blocks that it does not see. inv_ is p / e (under dropout, w / e). A sink,
// however large, changes only inv_ and lse, not e, so that the moments keep their digits.
void TileComputer::softmax(const RowId* rows, const KeyRange* visible, const KeyRange& keys) {
  const double cap = problem_.softcap;
  for (int64_t r = 0; r < num_rows_; ++r) {
    double* row = strip_.data() + r * stride_ - keys.begin;
    const int64_t n = visible[r].end - visible[r].begin;
    Eigen::Map<Eigen::ArrayXd> s(row + visible[r].begin, n);
    // What a relative change of softmax_scale adds to the scores, times it; later what it adds to the weights.
    const int64_t from_last = num_rows_ - 1 - r, tilt = from_last / kTiltStep;
    const int64_t tilted = from_last % kTiltStep == 0 ? n : 0;
    Eigen::Map<Eigen::ArrayXd> d(tilted_.data() + tilt * stride_ + visible[r].begin - keys.begin, tilted);
    d = s.head(tilted);
    // tanh is made of exp, because Eigen has no vectorised tanh of doubles. The absolute error, which matters
    // for a score, is a few 2^-53.
    if (cap > 0.0) s = cap - 2.0 * cap / ((s * (2.0 / cap)).exp() + 1.0);
    if (cap > 0.0) d *= 1.0 - (s.head(tilted) / cap).square();
    if (!problem_.alibi_slopes.empty()) terms_.add_alibi(rows[r], visible[r], row);
    const double sink = terms_.sink(rows[r].head);
    if (problem_.sees && keys_[r] == 0) {
      s.setZero();
      d.setZero();
      set_unseen(r, sink);
      continue;
    }
    const double lowest = problem_.sees ? hide(r, visible[r], keys) : s.minCoeff();
    const double top = s.maxCoeff();
    score_abs_[r] = std::max(std::abs(top), std::abs(std::max(lowest, top - kScoreRange)));
    if (sink >= top - kScoreRange) score_abs_[r] = std::max(score_abs_[r], std::abs(sink));
    s = (s - top).exp();
    // Eigen's exp(-inf) is not 0.
    if (problem_.sees) s *= seen_.segment(r * stride_ + visible[r].begin - keys.begin, n).array();
    const double largest = std::max(top, sink);
    const double weight = std::exp(top - largest);
    const double sum = weight * s.sum() + std::exp(sink - largest);
    inv_[r] = weight / sum;
    p2_[r] = s.square().sum() * inv_[r] * inv_[r];
    p_max_[r] = inv_[r];
    lse_[r] = largest + std::log(sum);
    if (tilted > 0) tilt_lse_[tilt] = inv_[r] * (s * d).sum();
    // q_ is multiplied by softmax_scale already.
    dot_norm_[r] = q_.row(r).norm() * largest_key(r, visible[r], keys);
    if (problem_.probs) {
      double* probs = probs_.data() + r * (keys.end - keys.begin) + visible[r].begin - keys.begin;
      Eigen::Map<Eigen::ArrayXd>(probs, n) = s * inv_[r];
    }
    if (problem_.p_dropout > 0) {
      for (int64_t j = visible[r].begin; j < visible[r].end; ++j) row[j] *= terms_.kept(rows[r], j);
      // If the row's largest weights are dropped, the moments are made relative to the largest kept weight.
      const double kept = s.maxCoeff();
      if (kept > kLeastKept && kept < 1.0) {
        score_abs_[r] =
            std::max(score_abs_[r], std::abs(std::max(lowest, top + std::log(kept) - kScoreRange)));
        s *= 1.0 / kept;
        inv_[r] *= kept;
      }
    }
    if (tilted > 0) d = (d - tilt_lse_[tilt]) * s * inv_[r];
    const double left = s.sum();
    w2_[r] = left > 0.0 ? s.square().sum() / (left * left) : 0.0;
  }
  for (const KeyBlock& block : blocks_) {
    for (int64_t r = block.first; r < block.last; ++r) {
      double* row = strip_.data() + r * stride_ - keys.begin;
      if (visible[r].begin > block.begin)
        std::fill(row + block.begin, row + std::min(visible[r].begin, block.end), 0.0);
      if (visible[r].end < block.end)
        std::fill(row + std::max(visible[r].end, block.begin), row + block.end, 0.0);
    }
  }
}

// Adds the products with the values, block by block. The output needs all digits, the moments about four.
// Therefore e^2 [v, v^2] is one float product of twice the width, which takes as long as one of the two
// double products, and only sums within a block are rounded to float. All terms of a2 are positive, so its
// relative error stays near 2^-24 sqrt(block); v2 gets the same error relative to a2 (see finish). A power of
// two per block scales the values, so that no square leaves float's range.
void TileComputer::accumulate(int seq, int kv_head, const KeyRange* visible, int64_t key_begin) {
  const Index d = problem_.value_dim();
  for (const KeyBlock& block : blocks_) {
    const Index n = block.end - block.begin;
    const Index at = block.begin - key_begin;
    const Index rows = block.last - block.first;
    inputs_.load_v(seq, kv_head, static_cast<int>(block.begin), static_cast<int>(block.end), v_.data());
    const auto v = v_.topRows(n);
    const auto e = scores().block(block.first, at, rows, n);
    o_.middleRows(block.first, rows).noalias() += e * v;
    const Scores tilted(tilted_.data(), num_tilts(), stride_, Eigen::OuterStride<>(stride_));
    tilt_.topRows(num_tilts()).noalias() += tilted.middleCols(at, n) * v;

    const double top = v.cwiseAbs().maxCoeff();
    const double unit = top > 0.0 && std::isfinite(top) ? std::ldexp(1.0, std::ilogb(top)) : 1.0;
    auto v_v2 = v_v2_.topRows(n);
    v_v2.leftCols(d) = (v * (1.0 / unit)).cast<float>();
    v_v2.rightCols(d) = v_v2.leftCols(d).cwiseAbs2();
    add_values(block, visible, key_begin, unit);
    auto e2 = weight2_.block(0, 0, rows, n);
    e2 = e.cwiseAbs2().cast<float>();
    e2 = (e2.array() < kLeastWeight2).select(0.0f, e2);
    add_carried(block, unit * unit);
    auto moment = block_moment_.topRows(rows);
    moment.noalias() = e2 * v_v2;
    b_.middleRows(block.first, rows) += unit * moment.leftCols(d).cast<double>();
    a2_.middleRows(block.first, rows) += (unit * unit) * moment.rightCols(d).cast<double>();
  }
}

// Adds sum v and sum v^2 of each row's visible part of the block, from prefix sums over the block. With gaps between
// visible keys there are no such sums.
void TileComputer::add_values(const KeyBlock& block, const KeyRange* visible, int64_t key_begin,
                              double unit) {
  const Index d = problem_.value_dim();
  const Index n = block.end - block.begin;
  const Index rows = block.last - block.first;
  const auto add = [&](Index r, const auto& sums) {
    mean_.row(r) += unit * sums.head(d).template cast<double>();
    vv_.row(r) += (unit * unit) * sums.tail(d).template cast<double>();
  };
  if (problem_.sees) {
    auto moment = block_moment_.topRows(rows);
    moment.noalias() =
        seen().block(block.first, block.begin - key_begin, rows, n).cast<float>() * v_v2_.topRows(n);
    for (Index r = 0; r < rows; ++r) add(block.first + r, moment.row(r));
    return;
  }
  prefix_.row(0).setZero();
  for (Index j = 0; j < n; ++j) prefix_.row(j + 1) = prefix_.row(j) + v_v2_.row(j).template cast<double>();
  for (int64_t r = block.first; r < block.last; ++r) {
    const Index begin = std::max(visible[r].begin, block.begin) - block.begin;
    const Index end = std::min(visible[r].end, block.end) - block.begin;
    if (begin < end) add(r, prefix_.row(end) - prefix_.row(begin));
  }
}

// Adds the sums of e^2 |v|^2 and of its squares; weight2_ has the e^2 of the block.
void TileComputer::add_carried(const KeyBlock& block, double unit2) {
  const Index n = block.end - block.begin;
  value_norm2_ = v_v2_.topRows(n).rightCols(problem_.value_dim()).rowwise().sum();
  for (int64_t r = block.first; r < block.last; ++r) {
    const auto carried = weight2_.row(r - block.first).head(n).transpose().cwiseProduct(value_norm2_);
    variance_[r] += unit2 * static_cast<double>(carried.sum());
    w4_[r] += unit2 * unit2 * static_cast<double>(carried.squaredNorm());
  }
}

// sum (w v - p o)^2 = a2 - 2 o sum p w v + o^2 p2, where p w v = w^2 v / scale because w is p * scale or 0.
// If one p is near 1, the terms cancel and v2 has an error of some 1e-6 of a2. The error model multiplies v2
// by the square of a logit's rounding error, so this does not matter. Centring v would reduce that error, but
// spoil a2 if the centre is far from the values that the row attends to.
void TileComputer::finish() {
  const double unscale = problem_.p_dropout > 0 ? 1.0 / double{dropout_scale(problem_.p_dropout)} : 1.0;
  for (int64_t r = 0; r < num_rows_; ++r) {
    const double inv = inv_[r];
    if (keys_[static_cast<size_t>(r)] > 0) mean_.row(r) /= static_cast<double>(keys_[static_cast<size_t>(r)]);
    if (variance_[r] > 0.0) w4_[r] /= variance_[r] * variance_[r];
    auto o = o_.row(r).array();
    auto a2 = a2_.row(r).array();
    auto b = b_.row(r).array();
    o *= inv;
    const double left_out = w2_[r] > 0.0 ? double{kLeastWeight2} : 0.0;
    a2 = (a2 + left_out * vv_.row(r).array()) * (inv * inv);
    b = (a2 - 2.0 * o * (b * (inv * inv * unscale)) + o.square() * p2_[r]).max(0.0);
  }
}

}  // namespace attnbench::reference
