#include <algorithm>
#include <cmath>

#include "harness/timing/timing.h"

namespace attnbench {

MedianInterval median_interval(std::vector<double> x) {
  if (x.empty()) return {0, 0, 0};
  std::sort(x.begin(), x.end());
  const std::size_t n = x.size();
  const double median = n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
  if (n < 6) return {median, x.front(), x.back()};  // even the range covers less than 95 %
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

}  // namespace attnbench
