#include "harness/compare/ratio.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

constexpr double kAlpha = 0.05;

/// Mean of a band of n sorted values; value i occurs counts(i) times.
template <class Counts>
double mean_of(const Band& band, std::span<const double> sorted, std::size_t n, Counts counts) {
  const double begin = static_cast<double>(n) * band.begin, end = static_cast<double>(n) * band.end;
  double seen = 0, sum = 0;
  for (std::size_t i = 0; i < sorted.size() && seen < end; ++i) {
    const double next = seen + static_cast<double>(counts(i));
    const double weight = std::min(next, end) - std::max(seen, begin);
    if (weight > 0) sum += weight * sorted[i];
    seen = next;
  }
  return sum / (end - begin);
}

/// Means of resamples of one side. It counts how often each of the sorted samples was drawn.
class Resampler {
 public:
  Resampler(std::span<const double> samples, uint32_t side, uint64_t seed, const Band& band)
      : sorted_(samples.begin(), samples.end()),
        counts_(samples.size()),
        side_(side),
        seed_(seed),
        band_(band) {
    std::ranges::sort(sorted_);
  }

  double mean(uint32_t resample) {
    const std::size_t n = sorted_.size();
    std::ranges::fill(counts_, 0u);
    for (std::size_t i = 0; i < n; i += 4) {
      const Philox4 r = philox4x32(static_cast<uint32_t>(i / 4), resample, side_, 0, seed_);
      for (std::size_t k = 0; k < 4 && i + k < n; ++k) ++counts_[(uint64_t{r.x[k]} * n) >> 32];
    }
    return mean_of(band_, sorted_, n, [&](std::size_t i) { return counts_[i]; });
  }

 private:
  std::vector<double> sorted_;
  std::vector<uint32_t> counts_;
  uint32_t side_;
  uint64_t seed_;
  Band band_;
};

/// The smallest two-sided p that a rank test of m against n samples can give: 2 / (m + n choose n).
double least_p(std::size_t m, std::size_t n) {
  const double a = static_cast<double>(m), b = static_cast<double>(n);
  return std::min(1.0, 2 * std::exp(std::lgamma(a + 1) + std::lgamma(b + 1) - std::lgamma(a + b + 1)));
}

/// Two-sided normal p of a log ratio that is `distance` beyond the edge of the band; 1 within the band.
double normal_p(double distance, double standard_error) {
  if (distance <= 0) return 1;
  return standard_error > 0 ? std::erfc(distance / standard_error / std::sqrt(2.0)) : 0;
}

/// Distance of the log ratio beyond the nearer edge of the band; negative within it.
double beyond(double ratio, double effect) {
  return ratio >= 1 ? std::log(ratio) - std::log1p(effect) : std::log1p(-effect) - std::log(ratio);
}

}  // namespace

RatioTest bootstrap_ratio(std::span<const double> base, std::span<const double> fresh, double effect,
                          uint64_t seed, const Band& band) {
  const auto most = static_cast<int>(std::min<std::size_t>(std::max(base.size(), fresh.size()), 1 << 20));
  const int resamples = std::clamp(200 * kResamples / most, kResamples / 4, kResamples);
  Resampler base_side(base, 0, seed, band), fresh_side(fresh, 1, seed, band);
  RatioTest t;
  t.ratio = band_mean({fresh.begin(), fresh.end()}, band) / band_mean({base.begin(), base.end()}, band);
  std::vector<double> ratios(static_cast<std::size_t>(resamples));
  int short_of_edge = 0;
  double sum = 0, squares = 0;
  for (int i = 0; i < resamples; ++i) {
    const auto draw = static_cast<uint32_t>(i);
    const double r = fresh_side.mean(draw) / base_side.mean(draw);
    ratios[static_cast<std::size_t>(i)] = r;
    short_of_edge += t.ratio >= 1 ? r <= 1 + effect : r >= 1 - effect;
    const double log_excess = std::log(r / t.ratio);
    sum += log_excess;
    squares += log_excess * log_excess;
  }
  std::ranges::sort(ratios);
  const auto tail = static_cast<std::size_t>(std::floor(kAlpha / 2 * resamples));
  t.lo = ratios[tail];
  t.hi = ratios[ratios.size() - 1 - tail];

  t.p = std::min(1.0, 2.0 * (short_of_edge + 1) / (resamples + 1));
  if (short_of_edge == 0) {
    const double mean = sum / resamples;
    const double standard_error = std::sqrt(std::max(0.0, squares / resamples - mean * mean));
    t.p = std::min(t.p, normal_p(beyond(t.ratio, effect), standard_error));
  }
  t.p = std::max(t.p, least_p(base.size(), fresh.size()));
  return t;
}

RatioTest interval_ratio(const MedianRange& base, const MedianRange& fresh, double effect) {
  RatioTest t;
  t.ratio = fresh.median / base.median;
  t.lo = fresh.lo / base.hi;
  t.hi = fresh.hi / base.lo;
  const double standard_error = std::log(t.hi / t.lo) / (2 * kNormal95);
  t.p = normal_p(beyond(t.ratio, effect), standard_error);
  if (base.samples > 0 && fresh.samples > 0) t.p = std::max(t.p, least_p(base.samples, fresh.samples));
  return t;
}

RunNoise noise_of_runs(std::span<const double> base_us, std::span<const double> fresh_us) {
  if (base_us.size() < 2 && fresh_us.size() < 2) return {};
  double squares = 0;
  std::size_t freedom = 0;
  for (const std::span<const double> side : {base_us, fresh_us}) {
    double mean = 0;
    for (const double us : side) {
      if (!(us > 0)) return {};
      mean += std::log(us) / static_cast<double>(side.size());
    }
    for (const double us : side) squares += (std::log(us) - mean) * (std::log(us) - mean);
    freedom += side.empty() ? 0 : side.size() - 1;
  }
  return {std::sqrt(squares / static_cast<double>(freedom)), static_cast<int>(freedom) + 1};
}

RunNoise noise_of_pairs(std::span<const double> base_us, std::span<const double> fresh_us) {
  const std::size_t n = base_us.size();
  if (n < 2 || fresh_us.size() != n) return {};
  std::vector<double> difference(n);
  double mean = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!(base_us[i] > 0 && fresh_us[i] > 0)) return {};
    difference[i] = std::log(fresh_us[i] / base_us[i]);
    mean += difference[i] / static_cast<double>(n);
  }
  for (const double d : difference) squares += (d - mean) * (d - mean);
  // For one side: a difference has the noise of two runs.
  return {std::sqrt(squares / static_cast<double>(n - 1) / 2), static_cast<int>(n)};
}

RunNoise noise_of_blocks(std::span<const std::vector<double>> base,
                         std::span<const std::vector<double>> fresh, const Band& band, uint64_t seed) {
  const std::size_t n = base.size();
  if (n < 2 || fresh.size() != n) return {};
  double sum = 0, squares = 0;
  for (uint32_t resample = 0; resample < kResamples; ++resample) {
    std::vector<double> b, f;
    for (std::size_t i = 0; i < n; ++i) {
      const uint64_t draw = philox4x32(static_cast<uint32_t>(i), resample, 0, 0, seed).x[0];
      const std::size_t pair = (draw * n) >> 32;
      b.insert(b.end(), base[pair].begin(), base[pair].end());
      f.insert(f.end(), fresh[pair].begin(), fresh[pair].end());
    }
    const double log_ratio = std::log(band_mean(std::move(f), band) / band_mean(std::move(b), band));
    sum += log_ratio;
    squares += log_ratio * log_ratio;
  }
  const double mean = sum / kResamples, runs = static_cast<double>(n);
  const double error = std::sqrt(std::max(0.0, squares / kResamples - mean * mean) * runs / (runs - 1));
  return {error * std::sqrt(runs / 2), static_cast<int>(n)};  // for one side, of one run
}

double student_p(double t, int freedom) {
  constexpr double kPi = 3.14159265358979323846;
  const double theta = std::atan(std::abs(t) / std::sqrt(static_cast<double>(freedom)));
  const double cosine = std::cos(theta), sine = std::sin(theta);
  // The share of the distribution within -t .. t.
  const bool odd = freedom % 2 != 0;
  double term = odd ? cosine : 1, sum = freedom > 1 ? term : 0;
  for (int k = odd ? 3 : 2; k < freedom; k += 2) {
    term *= cosine * cosine * (k - 1) / k;
    sum += term;
  }
  const double within = odd ? 2 / kPi * (theta + sine * sum) : sine * sum;
  return std::clamp(1 - within, 0.0, 1.0);
}

double student_95(int freedom) {
  double low = 0, high = 20;  // 12.71 with one degree of freedom
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (student_p(middle, freedom) > kAlpha ? low : high) = middle;
  }
  return high;
}

double noise_half_width(const RunNoise& noise, int base_runs, int fresh_runs) {
  if (noise.runs < 2 || !(noise.sigma > 0)) return 0;
  return student_95(noise.runs - 1) * noise.sigma *
         std::sqrt(1.0 / std::max(1, base_runs) + 1.0 / std::max(1, fresh_runs));
}

void widen_by_noise(RatioTest& test, const RunNoise& noise, int base_runs, int fresh_runs, double effect) {
  const double half = noise_half_width(noise, base_runs, fresh_runs);
  if (!(half > 0)) return;
  test.lo = std::min(test.lo, test.ratio * std::exp(-half));
  test.hi = std::max(test.hi, test.ratio * std::exp(half));
  const double distance = beyond(test.ratio, effect);
  const int freedom = noise.runs - 1;
  if (distance <= 0) {
    test.p = 1;
  } else {
    test.p = std::max(test.p, student_p(distance / half * student_95(freedom), freedom));
  }
}

std::vector<bool> benjamini_hochberg(std::span<const double> p, double q) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return p[a] < p[b]; });
  std::size_t rejected = 0;  // the largest rank k with p(k) <= q k / m
  for (std::size_t k = 1; k <= p.size(); ++k) {
    if (p[order[k - 1]] <= q * static_cast<double>(k) / static_cast<double>(p.size())) rejected = k;
  }
  std::vector<bool> out(p.size(), false);
  for (std::size_t k = 0; k < rejected; ++k) out[order[k]] = true;
  return out;
}

uint64_t name_seed(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

double band_mean(std::vector<double> values, const Band& band) {
  std::ranges::sort(values);
  return mean_of(band, values, values.size(), [](std::size_t) { return 1; });
}

}  // namespace attnbench
