#include "harness/facts/median_interval.h"

#include <algorithm>
#include <cmath>

namespace attnbench {

MedianInterval median_interval(std::vector<double> x) {
  if (x.empty()) return {0, 0, 0};
  std::ranges::sort(x);
  const std::size_t n = x.size();
  const double median = n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
  if (n < 6) return {median, x.front(), x.back()};  // even the range covers less than 95 %
  if (n > 1000) {                                   // 2^-n underflows; the binomial is close to normal
    const auto j =
        static_cast<std::size_t>((static_cast<double>(n) - 1.96 * std::sqrt(static_cast<double>(n))) / 2);
    return {median, x[j - 1], x[n - j]};
  }
  // Largest j with P(Binomial(n, 1/2) < j) <= 2.5 %: the interval is from the j-th to the (n+1-j)-th value.
  double term = std::exp(-static_cast<double>(n) * std::log(2.0));
  double below = 0;
  std::size_t j = 0;
  while (below + term <= 0.025) {
    below += term;
    ++j;
    term *= static_cast<double>(n - j + 1) / static_cast<double>(j);
  }
  if (j == 0) return {median, x.front(), x.back()};
  return {median, x[j - 1], x[n - j]};
}

double quantile(std::span<const double> sorted, double share) {
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
}

double half_interval(double median, double lo, double hi) {
  return std::max(hi - median, median - lo) / median;
}

double middle_half_error(std::vector<double> x) {
  std::ranges::sort(x);
  const std::size_t n = x.size(), cut = n / 4;
  for (std::size_t i = 0; i < cut; ++i) {
    x[i] = x[cut];
    x[n - 1 - i] = x[n - 1 - cut];
  }
  double mean = 0, squares = 0;
  for (const double v : x) mean += v / static_cast<double>(n);
  for (const double v : x) squares += (v - mean) * (v - mean);
  // Share of the samples that are left: a half, or slightly more.
  const double left = static_cast<double>(n - 2 * cut) / static_cast<double>(n);
  return 1.96 * std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n)) / left;
}

}  // namespace attnbench
