// What changes scores and weights beside q.k: ALiBi, sinks and dropout.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/plan.h"
#include "reference/reference.h"

namespace attnbench::reference {

class ScoreTerms {
 public:
  /// `problem` must outlive this.
  explicit ScoreTerms(const Problem& problem);

  /// Subtracts the ALiBi bias from the scores of `keys`; the score of a key is at scores[key].
  void add_alibi(const RowId& row, const KeyRange& keys, double* scores) const;
  /// The ALiBi bias of one key, which is subtracted from its score.
  double alibi(const RowId& row, int64_t key) const;
  /// What dropout multiplies the weight of a key by: 1 without dropout.
  double kept(const RowId& row, int64_t key) const;
  /// Without a sink -inf, because exp(-inf) = 0 and max(x, -inf) = x: callers need no special case.
  double sink(int head) const;

 private:
  double slope(const RowId& row) const;

  const Problem& problem_;
  std::vector<int64_t> q_begin_;  ///< first packed row of each sequence
};

}  // namespace attnbench::reference
