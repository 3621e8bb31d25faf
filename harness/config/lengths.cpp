#include "harness/config/lengths.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

// Keeps these draws apart from tensor values, whose fourth counter is a sequence's index (at most kMaxBatch).
constexpr uint32_t kStream = 0x6c656e73;  // "lens"

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

}  // namespace

int64_t draw_length(const LengthDistribution& d, uint64_t seed, uint32_t index, LengthOf which) {
  const Philox4 r = philox4x32(index, static_cast<uint32_t>(which), 0, kStream, seed);
  int64_t length = d.lo;
  if (d.shape == LengthDistribution::Shape::kUniform) {
    length = d.lo + scaled(static_cast<uint64_t>(d.hi - d.lo) + 1, r.x[0], r.x[1]);
  } else if (d.shape == LengthDistribution::Shape::kLognormal) {
    // Clipped before it becomes an integer, because exp may return infinity.
    const double x = d.median * std::exp(d.sigma * normal(r.x[0], r.x[1]));
    length = std::llround(std::min(x, static_cast<double>(d.clip_hi)));
  } else if (d.shape == LengthDistribution::Shape::kQuantiles) {
    length = at_probability(d.quantiles, unit(r.x[0], r.x[1]));
  }
  return std::clamp(length, d.clip_lo, d.clip_hi);
}

}  // namespace attnbench
