// Is one set of times slower than another? The ratio of midmeans, its interval, and a p-value that can be
// corrected for many cases.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/facts/device_info.h"

namespace attnbench {

inline constexpr double kNormal95 = 1.959964;  ///< half width of a 95 % interval, in standard deviations

/// The part of the sorted samples whose mean is compared, as shares of their number.
struct Band {
  double begin, end;
};
/// Of wall times, the middle half (the midmean): those of a short kernel come in steps of several percent, and a median
/// jumps between steps. Whatever else a machine does only lengthens CPU times, so of these the quickest fifth counts.
constexpr Band band_of(TimeClock clock) { return clock == TimeClock::kCpu ? Band{0, 0.2} : Band{0.25, 0.75}; }

/// The mean of a band of the values, with fractional weights at both ends. Requires at least one value.
double band_mean(std::vector<double> values, const Band& band);

struct RatioTest {
  double ratio = 1;  ///< mean of the band of the new samples / of the base
  double lo = 1;     ///< 95 % interval of the ratio
  double hi = 1;
  double p = 1;  ///< two-sided, for the hypothesis that the ratio is within 1 - effect .. 1 + effect
};

/// Number of resamples for up to 200 samples. More samples get fewer resamples, 500 at least, so that the
/// work stays the same. The midmean of many samples is nearly normal, so fewer resamples give the ends of its
/// interval.
inline constexpr int kResamples = 2000;
inline constexpr std::size_t kLeastForBootstrap = 5;

/// Percentile bootstrap of the ratio of means of a band (B. Efron, R. Tibshirani, An Introduction to the Bootstrap,
/// section 13.3). Both sides are resampled separately, with numbers from Philox, so a seed always gives the
/// same interval.
///
/// p is twice the share of resamples that fall short of the band's edge. If none does, the resamples cannot
/// show how small p is; then the normal tail of the bootstrap's log ratio is used. p is never below what a
/// rank test of that many samples could reach. Requires positive samples, at least one on each side.
RatioTest bootstrap_ratio(std::span<const double> base, std::span<const double> fresh, double effect,
                          uint64_t seed, const Band& band = band_of(TimeClock::kWall));

/// A median with its interval, for sides with too few samples to resample, or none.
struct MedianRange {
  double median = 0, lo = 0, hi = 0;
  std::size_t samples = 0;  ///< 0: unknown
};

/// The widest ratio that the two intervals allow: at least as wide as a 95 % interval.
RatioTest interval_ratio(const MedianRange& base, const MedianRange& fresh, double effect);

/// Noise between runs: the standard deviation of the log of a run's midmean, with runs - 1 degrees of
/// freedom.
struct RunNoise {
  double sigma = 0;
  int runs = 0;
};

/// Noise between the runs of the two sides, from their midmeans. It is pooled over both sides, so a
/// difference between the sides does not count. Returns no noise if neither side has two runs.
RunNoise noise_of_runs(std::span<const double> base_us, std::span<const double> fresh_us);

/// The same if run i of one side was made right beside run i of the other. It uses the spread of the
/// differences, which a machine that drifts affects less. Returns no noise for fewer than two pairs or an
/// incomplete one.
RunNoise noise_of_pairs(std::span<const double> base_us, std::span<const double> fresh_us);

/// The same of the mean of a band over the samples of all runs, from a bootstrap of whole pairs: a run that was slow as a
/// whole adds little to the quickest samples, so it widens this less.
RunNoise noise_of_blocks(std::span<const std::vector<double>> base,
                         std::span<const std::vector<double>> fresh, const Band& band, uint64_t seed);

/// Two-sided p of Student's t with `freedom` >= 1 degrees of freedom (the finite series of M. Abramowitz, I.
/// Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
double student_p(double t, int freedom);
/// The t whose student_p is 0.05.
double student_95(int freedom);

/// Half the width, in logs, of the 95 % interval that noise between runs leaves for a ratio pooled from
/// `base_runs` and `fresh_runs` runs. 0 if the noise is unknown.
double noise_half_width(const RunNoise& noise, int base_runs, int fresh_runs);

/// Widens the interval to what the noise between runs allows. Samples of one run share that run's clock,
/// memory layout and neighbours, so more samples of it do not reduce this noise. Never narrows; p becomes
/// that of Student's t if that is larger.
void widen_by_noise(RatioTest& test, const RunNoise& noise, int base_runs, int fresh_runs, double effect);

/// Which hypotheses are rejected when the false discovery rate is held at q (Y. Benjamini, Y. Hochberg,
/// 1995). Valid for independent and for positively dependent tests.
std::vector<bool> benjamini_hochberg(std::span<const double> p, double q);

/// FNV-1a of a name, used as the seed of its resamples.
uint64_t name_seed(std::string_view name);

}  // namespace attnbench
