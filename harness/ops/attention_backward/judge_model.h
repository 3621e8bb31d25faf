// The tolerance of gradients, derived from a kernel's declared arithmetic: see README.md of this folder.
#pragma once

#include <cstdint>

#include "harness/cases/case.h"
#include "harness/judge/error_model.h"
#include "reference/backward.h"

namespace attnbench {

/// Variances of the errors that one query row's pairs have in common.
struct RowErrors {
  double delta = 0;  ///< of delta, absolute
  double lse = 0;    ///< of the given LSE: relative to all P of the row
};

/// A gradient's element: its value, and the parts of its variance.
struct GradTerms {
  double value = 0;
  double pairs = 0;       ///< by errors of single dS or w
  double projection = 0;  ///< QueryGrads::projection; rows of dk and dv: 0
  RowErrors common;       ///< rows of dk and dv: none
  int64_t terms = 0;      ///< of the sum
  double heads = 0;       ///< rows of dk and dv: sum of squares of the query heads' parts; dq: 0
};

class BackwardModel {
 public:
  BackwardModel(const Case& c, const Numerics& numerics);

  reference::PairErrors pair_errors(const reference::RowFacts& row) const;
  RowErrors row_errors(const reference::RowFacts& row) const;
  /// The variance by rounding to the output's type, and of the parts of the query heads to the declared one.
  double rounding(const GradTerms& t) const;
  /// The variance by errors that all channels of the row have in common.
  double common(const GradTerms& t) const;
  double variance(const GradTerms& t) const { return rounding(t) + t.pairs + common(t); }
  /// The variance of a term exp(sink - LSE) * delta of dsinks.
  double sink_variance(const reference::RowFacts& row, double p_sink) const;
  /// The variance by the float32 sum of `terms` terms of dsinks and its rounding; squares: sum of their squares.
  double sink_sum_variance(double value, double squares, int64_t terms) const;

  double out_roundoff() const { return u_out_; }
  double p_roundoff() const { return u_p_; }
  double ulp(double x) const { return forward_.ulp(x); }

 private:
  double weight_error(double dot_norm, double score) const;
  double product_error(double norm, double value) const;

  double u_out_, u_p_, u_acc_, exp_err_, out_spacing_, p_spacing_, softcap_, keep_;
  double score_roundings_, dp_roundings_;
  double most_rows_;                      ///< most (query, head) pairs that may see a key
  double u_head_ = 0, head_spacing_ = 0;  ///< of Numerics::head_grad_type; 0: parts of heads are not rounded
  double group_;
  ErrorModel forward_;  ///< of the kernel that computed O and LSE
};

/// The sum over rows that dsinks of a head is.
struct SinkSum {
  int64_t rows = 0;
  double value = 0, squares = 0, variance = 0;

  void add(const BackwardModel& model, const reference::RowFacts& row, float sink);
  double sigma(const BackwardModel& model) const;
};

}  // namespace attnbench
