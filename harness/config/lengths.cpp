#include "harness/config/lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

// Keeps these draws apart from tensor values, whose fourth counter is a sequence's index (at most kMaxBatch).
constexpr uint32_t kStream = 0x6c656e73;  // "lens"
/// The draw that says whether a length is 0. Others count from 0 to 1000.
constexpr uint32_t kZeroDraw = 0x7a65726f;

/// floor(range * r / 2^64) for range <= 2^31: its bias is below 2^-32.
int64_t scaled(uint64_t range, uint32_t r_high, uint32_t r_low) {
  return static_cast<int64_t>((range * r_high + ((range * r_low) >> 32)) >> 32);
}

/// One standard normal value: G. E. P. Box and M. E. Muller, "A note on the generation of random normal
/// deviates", 1958. std::normal_distribution is not used because each standard library draws it differently.
double normal(uint32_t r0, uint32_t r1) {
  const double u0 = (r0 + 0.5) * 0x1p-32;  // never 0
  const double u1 = r1 * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u0)) * std::cos(2.0 * std::numbers::pi * u1);
}

/// A number in [0, 1), a multiple of 2^-53.
double unit(uint32_t r_high, uint32_t r_low) {
  return static_cast<double>((uint64_t{r_high} << 32 | r_low) >> 11) * 0x1p-53;
}

int64_t at_probability(const std::vector<Quantile>& table, double p) {
  const auto above =
      std::find_if(table.begin() + 1, table.end() - 1, [&](const Quantile& q) { return p < q.probability; });
  const Quantile& lo = *(above - 1);
  const auto length = static_cast<double>(lo.tokens);
  const double part = (p - lo.probability) / (above->probability - lo.probability);
  return std::llround(length * std::exp(part * std::log(static_cast<double>(above->tokens) / length)));
}

/// The part of a standard normal distribution below z.
double normal_below(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

/// The inverse of normal_below for 0 < p < 1, by bisection.
double normal_at(double p) {
  double lo = -9, hi = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (lo + hi) / 2;
    (normal_below(middle) < p ? lo : hi) = middle;
  }
  return lo;
}

double truncated_normal(const LengthDistribution& d, double u) {
  if (d.sigma == 0) return d.median;
  const double lo = normal_below((static_cast<double>(d.clip_lo) - 0.5 - d.median) / d.sigma);
  const double hi = normal_below((static_cast<double>(d.clip_hi) + 0.5 - d.median) / d.sigma);
  return d.median + d.sigma * normal_at(lo + u * (hi - lo));
}

/// Rejection-inversion: W. Hoermann and G. Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", 1996. Draw number i of a length is draw(i).
template <class Draw>
int64_t zipf(double exponent, int64_t most, const Draw& draw) {
  const double e = 1 - exponent;
  const auto integral = [&](double x) { return e == 0 ? std::log(x) : std::expm1(e * std::log(x)) / e; };
  const auto inverse = [&](double y) { return e == 0 ? std::exp(y) : std::exp(std::log1p(e * y) / e); };
  const double first = integral(1.5) - 1, last = integral(static_cast<double>(most) + 0.5);
  int64_t k = 1;
  for (uint32_t i = 0; i < 1000; ++i) {  // a draw is taken in most cases
    const double y = first + draw(i) * (last - first);
    k = std::clamp<int64_t>(std::llround(inverse(y)), 1, most);
    const auto x = static_cast<double>(k);
    if (y >= integral(x + 0.5) - std::pow(x, -exponent)) break;
  }
  return k;
}

}  // namespace

int64_t draw_length(const LengthDistribution& d, uint64_t seed, uint32_t index, LengthOf which) {
  using Shape = LengthDistribution::Shape;
  const auto draw = [&](uint32_t i) {
    return philox4x32(index, static_cast<uint32_t>(which), i, kStream, seed);
  };
  if (d.zeros > 0) {
    const Philox4 z = draw(kZeroDraw);
    if (unit(z.x[0], z.x[1]) < d.zeros) return 0;
  }
  const Philox4 r = draw(0);
  // Clipped before it becomes an integer, because exp and pow may return infinity.
  const auto rounded = [&](double x) { return std::llround(std::min(x, static_cast<double>(d.clip_hi))); };
  int64_t length = d.lo;
  switch (d.shape) {
    case Shape::kConstant:
      break;
    case Shape::kUniform:
      length = d.lo + scaled(static_cast<uint64_t>(d.hi - d.lo) + 1, r.x[0], r.x[1]);
      break;
    case Shape::kLognormal:
      length = rounded(d.median * std::exp(d.sigma * normal(r.x[0], r.x[1])));
      break;
    case Shape::kNormal:
      length = rounded(std::max(truncated_normal(d, unit(r.x[0], r.x[1])), 0.0));
      break;
    case Shape::kZipf:
      length = zipf(d.exponent, d.hi, [&](uint32_t i) {
        const Philox4 again = draw(i);
        return unit(again.x[0], again.x[1]);
      });
      break;
    case Shape::kBimodal:
      length = rounded((unit(r.x[2], r.x[3]) < d.share ? d.median2 : d.median) *
                       std::exp(d.sigma * normal(r.x[0], r.x[1])));
      break;
    case Shape::kLongtail:  // the least length is median / 2^(1/exponent)
      length = rounded(d.median * std::pow(2 * (1 - unit(r.x[0], r.x[1])), -1 / d.exponent));
      break;
    case Shape::kQuantiles:
      length = at_probability(d.quantiles, unit(r.x[0], r.x[1]));
      break;
  }
  return std::clamp(length, d.clip_lo, d.clip_hi);
}

}  // namespace attnbench
