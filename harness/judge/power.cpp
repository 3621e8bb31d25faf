#include "harness/judge/power.h"

#include <algorithm>

namespace attnbench {
namespace {

constexpr double kChance = 3;  ///< standard deviations

double share_or_nan(double e) { return e >= 0 && e < 1 ? e : NAN; }

}  // namespace

double least_by_row(double limit, double z2, double effect2, int n) {
  if (!(effect2 > 0)) return INFINITY;
  const double against = kChance * std::sqrt(z2 * effect2 / n);
  return (against + std::sqrt(against * against + effect2 * std::max(limit - z2, 0.0))) / effect2;
}

void LeastSeen::element(double z, double effect, double expected) {
  max_z_ = std::max(max_z_, std::abs(z));
  max_effect_ = std::max(max_effect_, std::abs(effect));
  z2_ += z * z;
  effect2_ += effect * effect;
  xx_ += expected * expected;
  xy_ += effect * expected;
}

void LeastSeen::end_row(int elements, double limit, double slope_weight) {
  by_rows_ = std::min({by_rows_, (kMaxZ + max_z_) / max_effect_,
                       least_by_row(limit, z2_ / elements, effect2_ / elements, elements)});
  if (slope_weight > 0 && xx_ > 0) {
    const double w = slope_weight * xx_, r = xy_ / xx_;
    rows_ += 1;
    w_ += w;
    wr_ += w * r;
    w2_ += w * w;
    w2r_ += w * w * r;
    w2r2_ += w * w * r * r;
  }
  max_z_ = max_effect_ = z2_ = effect2_ = xx_ = xy_ = 0;
}

void LeastSeen::add(const LeastSeen& o) {
  by_rows_ = std::min(by_rows_, o.by_rows_);
  for (double LeastSeen::*sum : {&LeastSeen::rows_, &LeastSeen::w_, &LeastSeen::wr_, &LeastSeen::w2_,
                                 &LeastSeen::w2r_, &LeastSeen::w2r2_})
    this->*sum += o.*sum;
}

double LeastSeen::slope() const {
  if (!(rows_ > 1)) return NAN;
  const double mean = wr_ / w_;
  const double variance = (w2r2_ - 2 * mean * w2r_ + mean * mean * w2_) / (w_ * w_) * rows_ / (rows_ - 1);
  return std::abs(mean) - kChance * std::sqrt(std::max(variance, 0.0));
}

void PowerTotals::add(const PowerTotals& o) {
  o_scale.add(o.o_scale);
  softmax_scale.add(o.softmax_scale);
  softmax_scale_by_lse = std::min(softmax_scale_by_lse, o.softmax_scale_by_lse);
  dropped_key = std::max(dropped_key, o.dropped_key);
  dropped_key_by_o = std::max(dropped_key_by_o, o.dropped_key_by_o);
}

void PowerTotals::end_row(int elements, double limit, double slope_weight, double by_lse) {
  o_scale.end_row(elements, limit, 0);
  softmax_scale.end_row(elements, limit, slope_weight);  // without derivatives it has no elements
  softmax_scale_by_lse = std::min(softmax_scale_by_lse, by_lse);
}

void PowerTotals::drop_key(double odds, double lse_change) {
  const double by_o = 1 / (1 + 1 / odds);
  dropped_key_by_o = std::max(dropped_key_by_o, by_o);
  dropped_key = std::max(dropped_key, std::min(by_o, -std::expm1(-lse_change)));
}

Power PowerTotals::power(double bias_left, double tilted) const {
  const double slope = tilted * softmax_scale.slope();
  const double by_o = slope > 0 ? std::min(softmax_scale.by_rows(), bias_left / slope)  //
                                : softmax_scale.by_rows();
  Power p;
  p.o_scale = share_or_nan(std::min(o_scale.by_rows(), bias_left));
  p.softmax_scale_by_o = share_or_nan(by_o);
  p.softmax_scale = share_or_nan(std::min(by_o, softmax_scale_by_lse));
  p.dropped_key_by_o = share_or_nan(dropped_key_by_o);
  p.dropped_key = share_or_nan(dropped_key);
  return p;
}

}  // namespace attnbench
