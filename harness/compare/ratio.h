// Is one set of times slower than another? The ratio of midmeans, its interval, and a p-value that many cases
// can be corrected with.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace attnbench {

/// The mean of the middle half of the values (the interquartile mean, with fractional weights at both ends).
/// What is compared. A short kernel's times come in steps of several percent, between which a median jumps
/// with the mix of the steps; the middle half moves with the mix. A quarter of the samples may be anything on
/// either side. Needs one value at least.
double midmean(std::vector<double> values);

struct RatioTest {
  double ratio = 1;  ///< midmean of the new samples / midmean of the base
  double lo = 1;     ///< 95 % interval of it
  double hi = 1;
  double p = 1;  ///< two-sided, of the hypothesis that the ratio lies within 1 - effect .. 1 + effect
};

/// Of up to 200 samples. Of more there are fewer, 500 at least: the work stays the same, and the midmean of
/// many samples is so nearly normal that the ends of its interval are known from fewer.
inline constexpr int kResamples = 2000;
inline constexpr std::size_t kLeastForBootstrap = 5;

/// Percentile bootstrap of the ratio of midmeans (B. Efron, R. Tibshirani, An Introduction to the Bootstrap,
/// section 13.3): both sides are resampled on their own, with numbers drawn from Philox, so that a seed
/// always gives the same interval. p is twice the share of resamples that fall short of the band's edge;
/// where none does, the resamples cannot tell how small p is, and the normal tail of the bootstrap's log
/// ratio stands in. It is never below what a rank test of that many samples could reach. Needs positive
/// samples, at least one on each side.
RatioTest bootstrap_ratio(std::span<const double> base, std::span<const double> fresh, double effect,
                          uint64_t seed);

/// A median with its interval, when there are too few samples to resample, or none.
struct MedianRange {
  double median = 0, lo = 0, hi = 0;
  std::size_t samples = 0;  ///< 0: not known
};

/// The widest ratio that the two intervals allow: wider than 95 %, never narrower.
RatioTest interval_ratio(const MedianRange& base, const MedianRange& fresh, double effect);

/// Noise between runs: the standard deviation of the log of a run's midmean, with runs - 1 degrees of
/// freedom.
struct RunNoise {
  double sigma = 0;
  int runs = 0;
};

/// The noise that the runs of the two sides show themselves, by their midmeans: pooled over both, so that a
/// difference between the sides is none of it. Nothing where neither side has two runs.
RunNoise noise_of_runs(std::span<const double> base_us, std::span<const double> fresh_us);

/// The same where run i of one side was made right beside run i of the other: from the spread of the
/// differences, which a machine that drifts changes less. Nothing under two pairs, or where one is
/// incomplete.
RunNoise noise_of_pairs(std::span<const double> base_us, std::span<const double> fresh_us);

/// Two-sided p of Student's t with this many degrees of freedom, at least 1 (the finite series of
/// M. Abramowitz, I. Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4).
double student_p(double t, int freedom);
/// The t whose student_p is 0.05.
double student_95(int freedom);

/// Half the width, in logs, that the noise between runs leaves a 95 % interval of a ratio pooled from
/// `base_runs` and `fresh_runs` runs. 0 where the noise says nothing.
double noise_half_width(const RunNoise& noise, int base_runs, int fresh_runs);

/// Widens the interval to what the noise between runs allows: samples of one run share that run's clock,
/// memory layout and neighbours, so more samples of it do not narrow that. Never narrows; p becomes that of
/// Student's t where that is larger.
void widen_by_noise(RatioTest& test, const RunNoise& noise, int base_runs, int fresh_runs, double effect);

/// Which hypotheses fall when the false discovery rate is held at q (Y. Benjamini, Y. Hochberg, 1995; holds
/// for independent and for positively dependent tests).
std::vector<bool> benjamini_hochberg(std::span<const double> p, double q);

/// FNV-1a of a name: the seed of its resamples.
uint64_t name_seed(std::string_view name);

}  // namespace attnbench
