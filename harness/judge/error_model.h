// The tolerance, derived from a kernel's declared arithmetic: see README.md of this folder.
#pragma once

#include <cstdint>
#include <string>

#include "harness/facts/verdict.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

inline constexpr double kMaxBiasSe = 8.0;      ///< limit of the slope, in standard errors ...
inline constexpr double kBiasFloor = 0x1p-13;  ///< ... plus this per rounding of O, which clean kernels reach

/// What the reference knows of a row.
struct RowMoments {
  double lse = 0;        ///< -inf: the row is empty
  double w2 = 0;         ///< sum w^2 / (sum w)^2 over the weights that values are multiplied by
  double p_max = 0;      ///< largest p
  double score_abs = 0;  ///< largest |score|
  double dot_norm = 0;   ///< softmax_scale * |q| * max |k|
  int64_t keys = 0;
  /// |dq| / |q|, dq the standard deviation per channel of what the kernel may have for q: 0 but for rotated
  /// queries, where an element near a rounding boundary may go either way.
  double q_error = 0;
  double w4 = 0;  ///< sum (w^2 |v|^2)^2 / (sum w^2 |v|^2)^2 over the keys
};

/// Shares of sigma^2, means over the channels of a row, that come from errors which the channels have in
/// common.
struct CommonShares {
  double logits = 0, denominator = 0;
};

class ErrorModel {
 public:
  /// head_dim: products that a score is the sum of. softcap: the case's, 0 where there is none; keep_scale: what dropout multiplies kept weights by;
  /// head_dim_v: channels of O, 0: as many as head_dim. out_scale: what O is divided by before it is stored.
  ErrorModel(const Numerics& numerics, DType out, int head_dim, double softcap = 0, double keep_scale = 1,
             int head_dim_v = 0, double out_scale = 1);

  /// Standard deviation of an output element's error. o: reference; a2 = sum p^2 v^2; v2 = sum p^2 (v - o)^2;
  /// vv = sum v^2.
  double sigma(const RowMoments& row, double o, double a2, double v2, double vv) const;
  double sigma_lse(const RowMoments& row) const;
  /// Standard deviation of the error of a returned probability whose reference is p.
  double sigma_p(const RowMoments& row, double p) const;
  /// The part of sigma^2 that comes from errors of the row's logits, which all its channels have in common.
  double logit_variance(const RowMoments& row, double a2, double v2) const;
  /// The part that comes from the denominator's roundings, one error for the whole row.
  double denominator_variance(const RowMoments& row, double o) const;
  /// Limit of the mean of z^2 over the channels of a row.
  double row_limit(const RowMoments& row, const CommonShares& shares) const;
  /// Variance, relative to the row itself, of the part of its error that is a multiple of it, as roundings
  /// of P and errors of logits leave it in all channels together where few keys carry the row.
  double common_variance(const RowMoments& row) const;
  /// Limit of a bias of O by digits that the matrix unit cuts off sums of 8-bit products, or off its operands
  /// (ops/attention_backward/README.md).
  double mma_bias() const { return mma_bias_; }
  /// Limit of the bias that rounding O leaves, because a step is not small beside O (ops/attention_backward/README.md).
  double rounding_bias() const { return u_out_ * u_out_ / 2; }
  /// Unit roundoff of O, and the spacing of its type near zero.
  double out_roundoff() const { return u_out_; }
  double out_quantum() const { return quantum_; }
  /// Unit roundoff of the weights.
  double p_roundoff() const { return u_p_; }
  /// One unit in the last place of the output type at |x|.
  double ulp(double x) const;

 private:
  double logit_error(const RowMoments& row) const;   ///< absolute, standard deviation
  double weight_error(const RowMoments& row) const;  ///< relative, by the logit's error
  double u_out_, u_p_, u_in_, u_acc_, u_dot_, mma_bias_, exp_err_, quantum_, p_quantum_, softcap_,
      keep_scale_;
  double score_roundings_;  ///< of a score, as a multiple of u_dot: its own two, and those of its sum
  DType out_;
  double chi_limit_;
};

/// Least subnormal of the type: the spacing of results near zero. int8 is used for P only, in steps of 1/127.
double least_spacing(DType t);

/// Least normal float32: a kernel may flush what is smaller to zero.
inline constexpr double kFlushed = 0x1p-126;

/// Upper 1e-9 quantile of a chi-square mean over n squares, by Wilson and Hilferty's cube root.
double chi_square_mean_limit(double n);

/// What the detector `bias` found of an output. slope: least-squares slope of (out - o) on o; limit: of |slope|.
std::string bias_text(const char* output, double slope, double bias_se, double limit);

}  // namespace attnbench
