#include "harness/judge/error_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnbench {

double least_spacing(DType t) {
  switch (t) {
    case DType::kFp16:
      return 0x1p-24;
    case DType::kBf16:
      return 0x1p-133;
    case DType::kE4m3:
      return 0x1p-9;
    case DType::kE5m2:
      return 0x1p-16;
    case DType::kE2m1x2:
      return 0.5;
    case DType::kInt8:  // of P: its largest is 127
      return 1.0 / 127;
    default:
      return 0x1p-149;
  }
}

double chi_square_mean_limit(double n) {
  constexpr double kNormalQuantile = 6.0;
  const double c = 1.0 - 2.0 / (9.0 * n) + kNormalQuantile * std::sqrt(2.0 / (9.0 * n));
  return c * c * c;
}

ErrorModel::ErrorModel(const Numerics& n, DType out, int head_dim, double softcap, double keep_scale,
                       int head_dim_v, double out_scale)
    : u_out_(unit_roundoff(out)),
      u_p_(std::max({unit_roundoff(n.p_type), n.exp_rel_err, n.input_roundoff})),
      u_in_(n.input_roundoff),
      u_acc_(unit_roundoff(n.acc_type)),
      u_dot_(std::max(u_acc_, n.mma_roundoff)),
      mma_bias_((dtype_size(n.p_type) == 1 ? 16 * n.mma_roundoff : 0.0) + n.input_roundoff),
      exp_err_(n.exp_rel_err),
      quantum_(least_spacing(out) * out_scale),
      p_quantum_(std::max(least_spacing(n.p_type) / n.p_scale, kFlushed)),
      softcap_(softcap),
      keep_scale_(keep_scale),
      score_roundings_(std::sqrt(4.0 + head_dim / 9.0)),
      out_(out),
      chi_limit_(std::max(2.0, chi_square_mean_limit(head_dim_v > 0 ? head_dim_v : head_dim))) {}

double ErrorModel::logit_error(const RowMoments& r) const {
  // D products are summed in the accumulator's type, or in the matrix unit with fewer digits. If they are
  // random, their partial sums stay far below
  // dot_norm. If all have one sign, partial sum i is i / D of the score: D roundings of variance
  // u^2 / 3 * (i / D)^2 add up to u^2 * D / 9. Scaling and the exponent's argument round the score twice more.
  // tanh(x) of a softcap, made of exponentials, errs by their relative error in absolute terms, times the
  // cap.
  // Operands that lose digits change q.k by 2 u_in sum |q_i k_i| at most, which is 2 u_in dot_norm or less.
  return u_dot_ * (r.dot_norm + score_roundings_ * r.score_abs) + (r.q_error + u_in_) * r.dot_norm +
         softcap_ * std::max(exp_err_, u_acc_);
}

double ErrorModel::sigma(const RowMoments& r, double o, double a2, double v2, double vv) const {
  const double n = static_cast<double>(r.keys);
  // A sum of n terms in the accumulator's type: each of its n roundings is relative to a partial sum, whose
  // square averages a2 / 2 + o^2 / 3 over the way; the denominator's n roundings add o^2 / 3.
  const double accumulation = u_acc_ * u_acc_ / 3.0 * n * (a2 / 2.0 + 2.0 * o * o / 3.0);
  // Digits that are cut off V, and off P, make all of the sum smaller.
  const double rounding =
      (u_out_ * u_out_ * o * o + (u_p_ * u_p_ + u_in_ * u_in_) * a2) / 3.0 + u_in_ * u_in_ * o * o;
  // P is held relative to its row's largest, so that its type's least spacing is p_max times that: in fp16
  // all weights below 2^-14 of the largest lose digits.
  const double p_quantum = p_quantum_ * r.p_max * keep_scale_;
  const double spacing = (p_quantum * p_quantum * vv + quantum_ * quantum_) / 12.0;
  // A weight that is flushed, as one beside a large sink may be, loses all of itself and not half of a
  // spacing: a uniform error from 0 to kFlushed. The output may be flushed likewise.
  const double flushed = kFlushed * kFlushed * (keep_scale_ * keep_scale_ * vv + 1.0) / 3.0;
  return std::sqrt(rounding + accumulation + logit_variance(r, a2, v2) + spacing + flushed);
}

double ErrorModel::weight_error(const RowMoments& r) const {
  // A weight whose logit is off by kMaxZ * ds is e^(kMaxZ ds) times itself, which is more than 1 + kMaxZ ds.
  const double far = std::min(kMaxZ * logit_error(r), 300.0);
  return (far < 1e-3 ? far : std::expm1(far)) / kMaxZ;  // expm1 costs time, and this is asked per channel
}

double ErrorModel::sigma_lse(const RowMoments& r) const {
  const double ds = logit_error(r);
  const double n = static_cast<double>(r.keys);
  // The logarithm and the product with ln 2 round relative to |lse|; the sum's own error is relative to 1.
  const double sum = u_acc_ * u_acc_ * (1.0 + n / 3.0) + exp_err_ * exp_err_;
  const double log = u_acc_ * (1.0 + std::abs(r.lse));
  return std::sqrt(ds * ds + sum + log * log);
}

double ErrorModel::sigma_p(const RowMoments& r, double p) const {
  // exp(score - LSE): the errors of both, of the exponential and of a P that is rounded first, all relative.
  // A kernel may flush what a float32 exponential would hold as a subnormal.
  const double lse = sigma_lse(r);
  const double ds = logit_error(r);
  const double relative = std::sqrt(ds * ds + lse * lse + u_p_ * u_p_ / 3.0);
  // An exponent that is off by kMaxZ times as much makes e^(kMaxZ relative) of p.
  return p * std::expm1(std::min(kMaxZ * relative, 700.0)) / kMaxZ + kFlushed;
}

double ErrorModel::logit_variance(const RowMoments& r, double a2, double v2) const {
  constexpr double kV2Error = 1e-5;  // of a2, where the reference's v2 may be that much too small
  const double error = weight_error(r);
  return error * error * (v2 + kV2Error * a2);
}

double ErrorModel::denominator_variance(const RowMoments& r, double o) const {
  return u_acc_ * u_acc_ / 3.0 * static_cast<double>(r.keys) * o * o / 3.0;
}

double ErrorModel::row_limit(const RowMoments& r, const CommonShares& shares) const {
  // When few keys carry a row, the errors of their P and of their logits are common to all its channels, and
  // the mean of z^2 no longer averages over channels. A rounding of P is uniform: one alone reaches 3 times
  // its variance. An error of a logit is a sum of many: one alone is a normal variable.
  const double keys = 1.0 / std::clamp(r.w2, 1e-6, 1.0);
  const double rounded_p =
      u_p_ < 0x1p-20 && p_quantum_ < 0x1p-20 ? chi_limit_ : chi_limit_ * (1.0 + 2.0 / keys);
  const double logits = std::max(chi_limit_, chi_square_mean_limit(keys));
  // The denominator's error is one number for the whole row.
  static const double denominator = chi_square_mean_limit(1);
  const double apart = std::max(1.0 - shares.logits - shares.denominator, 0.0);
  return apart * rounded_p + shares.logits * logits + shares.denominator * denominator;
}

double ErrorModel::common_variance(const RowMoments& r) const {
  // Key j's error e_j of its weight adds e_j w_j v_j to the row, and w_j v_j . o / |o|^2 = w_j^2 |v_j|^2 /
  // sum w^2 |v|^2 of the row where values are independent: ops/attention_backward/README.md.
  const double p_quantum = p_quantum_ * r.p_max * keep_scale_;
  const double spacing = r.w2 > 0 ? p_quantum * p_quantum / (12.0 * r.w2) : 0.0;
  // An error d_j of a weight adds d_j w_j (v_j - o): nothing where one key carries the row.
  const double error = weight_error(r);
  return r.w4 * u_p_ * u_p_ / 3.0 + spacing + error * error * std::max(r.w4 - r.w2, 0.0);
}

double ErrorModel::ulp(double x) const {
  const double a = std::abs(x);
  if (a == 0) return quantum_;
  int exponent;
  const double scale = quantum_ / least_spacing(out_);
  std::frexp(a / scale, &exponent);  // in [2^(e-1), 2^e): spacing 2^(e-p), u = 2^-p
  return std::max(quantum_, scale * std::ldexp(u_out_, exponent));
}

std::string bias_text(const char* output, double slope, double bias_se, double limit) {
  return fmt::format(
      "{} is biased: its elements are {:.3g} % too {} on average (a fit over all compared rows, {:.1f} standard "
      "errors), and at most {:.3g} % is allowed; a scale, a descale or a denominator that is slightly off does "
      "this",
      output, 100 * std::abs(slope), slope > 0 ? "large" : "small", bias_se, 100 * limit);
}

}  // namespace attnbench
