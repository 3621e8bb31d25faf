// Gradients of one sequence, made of its pairs by a rule that may be wrong. Small sequences only.
#pragma once

#include <functional>
#include <vector>

#include "reference/backward.h"

namespace attnbench {

/// A query row and a key of one sequence, and what their gradients are made of.
struct GradPair {
  int i = 0, j = 0, head = 0;
  int q_len = 0, k_len = 0;
  int group = 1;  ///< query heads per KV head
  double lse = 0, delta = 0;
  double group_delta = 0;  ///< of the group's first head
  double p = 0;
  double keep = 1;   ///< what dropout multiplies by
  double dp = 0;     ///< dO.v
  double slope = 1;  ///< derivative of the softcap
  int64_t diag() const { return int64_t{i} + k_len - q_len; }
};

/// One of the three sums that a pair belongs to.
enum class Grad { kDq, kDk, kDv };

/// Which parts of the arithmetic are wrong; empty members leave their part right.
struct GradRule {
  std::function<void(reference::Problem&)> problem;  ///< makes the problem that P answers
  /// dS of a pair in dq and in dk, and the weight of dO in dv.
  std::function<double(const GradPair&, Grad)> term;
  std::function<int(int head)> kv_head;  ///< that a query head's dk and dv go to
  double dq_factor = 1, dk_factor = 1;
  std::function<double(double)> round_sum;  ///< of the running sums of dq
};

/// dS of a pair; `delta` in place of its own.
double ds_of(const GradPair& pair, double delta);
/// The right term of a pair.
double right_term(const GradPair& pair, Grad of);

/// P, dP and delta of all pairs of a sequence.
class GradPairs {
 public:
  /// `right` and `inputs` must outlive this; P answers `p_of`. num_threads 0: all.
  GradPairs(const reference::Problem& right, reference::Problem p_of, const reference::BackwardInputs& inputs,
            int seq, int num_threads);

  /// A row of dq (query `pos`, query head), or of dk or dv (key `pos`, KV head).
  std::vector<double> row(const GradRule& rule, Grad of, int pos, int head) const;
  /// The row's term of dsinks.
  double dsink(int pos, int head) const;

 private:
  struct QueryRow {
    std::vector<double> p, q, d_out, dp, slope;
    double lse = 0, delta = 0;
  };
  GradPair pair(int pos, int head, int j) const;
  const QueryRow& at(int pos, int head) const {
    return rows_[static_cast<std::size_t>(pos * p_.num_heads_q + head)];
  }

  const reference::Problem& p_;
  int seq_, q_len_, k_len_;
  int64_t first_row_;                   ///< of the sequence, for dropout
  std::vector<QueryRow> rows_;          ///< by (pos, head)
  std::vector<std::vector<double>> k_;  ///< by KV head
};

}  // namespace attnbench
