#include "harness/facts/two_speeds.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "harness/facts/median_interval.h"

namespace attnbench {
namespace {

constexpr std::size_t kLeastSamples = 40;
constexpr double kLeastShare = 0.15, kLeastRatio = 1.03;

/// Where sorted samples are cut so that the squared distances to the means of both sides are least.
std::size_t best_cut(const std::vector<double>& x, std::size_t least) {
  double total = 0;
  for (const double v : x) total += v;
  double below = 0, best = -1;
  std::size_t cut = least;
  for (std::size_t i = 1; i + least <= x.size(); ++i) {
    below += x[i - 1];
    if (i < least) continue;
    // The sum of squares is constant, so the squared distances are least where this is greatest.
    const auto n = static_cast<double>(i), m = static_cast<double>(x.size() - i);
    const double between = below * below / n + (total - below) * (total - below) / m;
    if (between > best) {
      best = between;
      cut = i;
    }
  }
  return cut;
}

}  // namespace

std::optional<TwoSpeeds> two_speeds(std::vector<double> x) {
  if (x.size() < kLeastSamples) return std::nullopt;
  std::ranges::sort(x);
  const auto least = static_cast<std::size_t>(std::ceil(kLeastShare * static_cast<double>(x.size())));
  const std::size_t cut = best_cut(x, least);
  const std::span<const double> quick(x.data(), cut), slow(x.data() + cut, x.size() - cut);
  const TwoSpeeds found{quantile(quick, 0.5), quantile(slow, 0.5),
                        static_cast<double>(cut) / static_cast<double>(x.size())};
  const auto width = [](std::span<const double> group) {
    return quantile(group, 0.9) - quantile(group, 0.1);
  };
  const double gap = quantile(slow, 0.1) - quantile(quick, 0.9);
  const bool apart = found.slow >= kLeastRatio * found.quick && gap >= std::max(width(quick), width(slow));
  return apart ? std::optional(found) : std::nullopt;
}

}  // namespace attnbench
