#include "reference/score_terms.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernels/contract/dropout.h"
#include "reference/plan.h"

namespace attnbench::reference {

ScoreTerms::ScoreTerms(const Problem& problem) : problem_(problem) {
  int64_t begin = 0;
  q_begin_ = problem.q_begins;
  if (!q_begin_.empty()) return;
  for (const int q_len : problem.q_lens) {
    q_begin_.push_back(begin);
    begin += q_len;
  }
}

double ScoreTerms::slope(const RowId& row) const {
  const std::vector<double>& slopes = problem_.alibi_slopes;
  const size_t heads = static_cast<size_t>(problem_.num_heads_q);
  return slopes[slopes.size() == heads ? row.head : row.seq * heads + row.head];
}

void ScoreTerms::add_alibi(const RowId& row, const KeyRange& keys, double* scores) const {
  const double slope = this->slope(row);
  const int64_t diag = diagonal(problem_, row.seq, row.pos);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    const double distance = static_cast<double>(std::abs(diag - j));
    scores[j] -= slope * (problem_.alibi_sqrt ? std::sqrt(distance) : distance);
  }
}

double ScoreTerms::alibi(const RowId& row, int64_t key) const {
  if (problem_.alibi_slopes.empty()) return 0.0;
  const double distance = static_cast<double>(std::abs(diagonal(problem_, row.seq, row.pos) - key));
  return slope(row) * (problem_.alibi_sqrt ? std::sqrt(distance) : distance);
}

double ScoreTerms::kept(const RowId& row, int64_t key) const {
  if (!(problem_.p_dropout > 0)) return 1.0;
  const bool kept =
      dropout_keeps(problem_.dropout_seed, problem_.dropout_offset, row.head, q_begin_[row.seq] + row.pos,
                    static_cast<int32_t>(key), dropout_threshold(problem_.p_dropout));
  return kept ? double{dropout_scale(problem_.p_dropout)} : 0.0;
}

double ScoreTerms::sink(int head) const {
  return problem_.sinks.empty() ? -std::numeric_limits<double>::infinity() : problem_.sinks[head];
}

}  // namespace attnbench::reference
