// Lengths drawn from distributions, and `batch` as a mapping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/config/batch_spec.h"
#include "harness/config/lengths.h"
#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Shape = LengthDistribution::Shape;

std::vector<int64_t> draw(const LengthDistribution& d, uint64_t seed, std::size_t n,
                          LengthOf which = LengthOf::kBoth) {
  std::vector<int64_t> lengths(n);
  for (std::size_t i = 0; i < n; ++i) lengths[i] = draw_length(d, seed, static_cast<uint32_t>(i), which);
  return lengths;
}

LengthDistribution uniform(int64_t lo, int64_t hi) {
  return {.shape = Shape::kUniform, .lo = lo, .hi = hi, .clip_lo = 0, .clip_hi = kMaxSeqLen};
}

LengthDistribution lognormal(double median, double sigma, int64_t clip_lo = 1, int64_t clip_hi = 1 << 20) {
  return {
      .shape = Shape::kLognormal, .median = median, .sigma = sigma, .clip_lo = clip_lo, .clip_hi = clip_hi};
}

SweepFile parse_batch(const std::string& batch, std::optional<uint64_t> seed = std::nullopt) {
  return parse_sweep_text("name: t\nseed: 5\nsweeps:\n  - batch: " + batch + "\n", "t.yaml", {}, seed);
}

/// The lengths of `batch: <text>`.
std::vector<SeqLen> lengths_of(const std::string& batch, std::optional<uint64_t> seed = std::nullopt) {
  CaseParams params;
  parse_batch(batch, seed).sweeps.at(0).fixed.at(0).apply(params);
  return params.seqs;
}

std::string error_of(const std::string& batch) {
  try {
    parse_batch(batch);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Lengths, AreTheSameOnEveryPlatform) {
  EXPECT_THAT(draw(uniform(0, 1000000), 1, 4), ElementsAre(183861, 649939, 424011, 461128));
  EXPECT_THAT(draw(lognormal(800, 1), 1, 4), ElementsAre(4449, 333, 2012, 946));
}

TEST(Lengths, DependOnSeedIndexAndWhichOnly) {
  const LengthDistribution d = uniform(0, 1 << 30);
  EXPECT_EQ(draw(d, 1, 100), draw(d, 1, 100));
  EXPECT_NE(draw(d, 1, 100), draw(d, 2, 100));
  EXPECT_NE(draw(d, 1, 100), draw(d, uint64_t{1} << 40, 100));
  EXPECT_NE(draw(d, 1, 100, LengthOf::kQuery), draw(d, 1, 100, LengthOf::kKey));
}

TEST(Lengths, UniformReachesBothEndsEvenly) {
  std::vector<int> counts(4);
  for (int64_t n : draw(uniform(3, 6), 9, 40000)) ++counts.at(static_cast<std::size_t>(n - 3));
  // Each count is binomial(40000, 1/4): standard deviation 87.
  for (int c : counts) EXPECT_NEAR(c, 10000, 5 * 87);
  EXPECT_THAT(draw(uniform(7, 7), 9, 10), Each(7));
}

TEST(Lengths, LognormalHasItsMedianAndSigma) {
  constexpr std::size_t n = 100000;
  std::vector<int64_t> lengths = draw(lognormal(20000, 0.5), 3, n);
  double sum = 0;
  double squares = 0;
  for (int64_t length : lengths) {
    const double x = std::log(static_cast<double>(length) / 20000);
    sum += x;
    squares += x * x;
  }
  // n normal values with deviation 0.5: the standard error of the mean is 0.0016, that of the deviation
  // 0.0011.
  EXPECT_NEAR(sum / n, 0.0, 0.008);
  EXPECT_NEAR(std::sqrt(squares / n), 0.5, 0.006);
  std::nth_element(lengths.begin(), lengths.begin() + n / 2, lengths.end());
  EXPECT_NEAR(static_cast<double>(lengths[n / 2]), 20000, 20000 * 0.01);
}

TEST(Lengths, ClipIsAppliedToEveryDraw) {
  const std::vector<int64_t> lengths = draw(lognormal(800, 3, 16, 8192), 3, 10000);
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 16);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 8192);
  // The widest tail that a file may request overflows neither exp nor the rounding.
  const std::vector<int64_t> wide = draw(lognormal(1 << 30, 16, 0, kMaxSeqLen), 3, 10000);
  EXPECT_EQ(*std::min_element(wide.begin(), wide.end()), 0);
  EXPECT_EQ(*std::max_element(wide.begin(), wide.end()), kMaxSeqLen);
}

/// The part of n draws that is at most `length`.
double part_below(const std::vector<int64_t>& lengths, int64_t length) {
  return static_cast<double>(
             std::count_if(lengths.begin(), lengths.end(), [&](int64_t x) { return x <= length; })) /
         static_cast<double>(lengths.size());
}

constexpr std::size_t kDraws = 40000;
constexpr double kError = 5 * 0.0025;  // five times the standard error of a part near one half

TEST(Lengths, NormalIsTruncatedAndNotClamped) {
  LengthDistribution d = {
      .shape = Shape::kNormal, .median = 100, .sigma = 50, .clip_lo = 50, .clip_hi = 1000};
  const std::vector<int64_t> lengths = draw(d, 4, kDraws);
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 50);
  EXPECT_LT(part_below(lengths, 50), 0.02) << "a clamped draw would leave 16 % at the end";
  // P(X <= 150.5 | X > 49.5) of N(100, 50^2).
  EXPECT_NEAR(part_below(lengths, 150), (0.84375 - 0.15625) / (1 - 0.15625), kError);
}

TEST(Lengths, ZipfHasItsProbabilities) {
  for (const double exponent : {0.5, 1.0, 2.0}) {
    const LengthDistribution d = {
        .shape = Shape::kZipf, .hi = 100, .clip_lo = 1, .clip_hi = 100, .exponent = exponent};
    const std::vector<int64_t> lengths = draw(d, 5, kDraws);
    double all = 0;
    for (int k = 1; k <= 100; ++k) all += std::pow(k, -exponent);
    double below = 0;
    for (int k = 1; k <= 4; ++k) {
      below += std::pow(k, -exponent) / all;
      EXPECT_NEAR(part_below(lengths, k), below, kError) << k << " of exponent " << exponent;
    }
    EXPECT_GT(*std::max_element(lengths.begin(), lengths.end()), 80);
  }
}

TEST(Lengths, BimodalHasTwoMedians) {
  const LengthDistribution d = {.shape = Shape::kBimodal,
                                .median = 200,
                                .sigma = 0.3,
                                .clip_lo = 1,
                                .clip_hi = 1 << 20,
                                .median2 = 8000,
                                .share = 0.1};
  const std::vector<int64_t> lengths = draw(d, 6, kDraws);
  EXPECT_NEAR(part_below(lengths, 1200), 0.9, kError);
  EXPECT_NEAR(part_below(lengths, 200), 0.45, kError);
  EXPECT_NEAR(part_below(lengths, 8000), 0.95, kError);
}

TEST(Lengths, LongtailFallsAsAPower) {
  const LengthDistribution d = {
      .shape = Shape::kLongtail, .median = 1000, .clip_lo = 1, .clip_hi = kMaxSeqLen, .exponent = 1.5};
  const std::vector<int64_t> lengths = draw(d, 7, kDraws);
  EXPECT_NEAR(part_below(lengths, 1000), 0.5, kError);
  EXPECT_NEAR(part_below(lengths, 4000), 1 - 0.5 / 8, kError);        // four times as long: 4^-1.5 = 1/8
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 630);  // 1000 / 2^(1/1.5)
}

TEST(Lengths, NewShapesAreTheSameOnEveryPlatform) {
  LengthDistribution d = {.median = 800, .sigma = 100, .clip_lo = 1, .clip_hi = 1 << 20};
  d.hi = 5000;
  d.exponent = 1.1;
  d.median2 = 9000;
  d.share = 0.3;
  d.quantiles = {{0, 16}, {0.5, 800}, {1, 8192}};
  std::vector<std::vector<int64_t>> drawn;
  for (const Shape shape :
       {Shape::kNormal, Shape::kZipf, Shape::kBimodal, Shape::kLongtail, Shape::kQuantiles}) {
    d.shape = shape;
    d.sigma = shape == Shape::kNormal ? 100 : 1;
    drawn.push_back(draw(d, 1, 3));
  }
  EXPECT_THAT(drawn,
              ElementsAre(ElementsAre(710, 839, 781), ElementsAre(2, 76, 10), ElementsAre(50053, 333, 2012),
                          ElementsAre(512, 1106, 703), ElementsAre(67, 1607, 441)));
}

TEST(BatchMapping, TotalCutsTheLastSequence) {
  EXPECT_EQ(lengths_of("{lengths: 100, total: 250}"), parse_batch_spec("2q100_q50"));
  EXPECT_EQ(lengths_of("{q: 1, context: 99, total: 250}"), parse_batch_spec("2q1s100_q1s50"));
  EXPECT_EQ(lengths_of("{lengths: 100, total: 200}"), parse_batch_spec("2q100"));
  int64_t keys = 0;
  for (const SeqLen& s : lengths_of("{lengths: {zipf: {exponent: 1.1, max: 4k}}, total: 64k}")) keys += s.k;
  EXPECT_EQ(keys, 65536);
}

TEST(BatchMapping, OrderSortsOrShuffles) {
  EXPECT_EQ(lengths_of("{lengths: [3, 1, 2], order: ascending}"), parse_batch_spec("q1_q2_q3"));
  EXPECT_EQ(lengths_of("{lengths: [3, 1, 2], order: descending}"), parse_batch_spec("q3_q2_q1"));
  EXPECT_EQ(lengths_of("{lengths: [3, 1, 2], order: as_drawn}"), parse_batch_spec("q3_q1_q2"));
  const std::string list = "{lengths: [1, 2, 3, 4, 5, 6, 7, 8, 9]";
  std::vector<SeqLen> shuffled = lengths_of(list + ", order: shuffled}");
  EXPECT_NE(shuffled, lengths_of(list + "}"));
  EXPECT_NE(shuffled, lengths_of(list + ", order: shuffled, seed: 6}"));
  std::sort(shuffled.begin(), shuffled.end(), [](const SeqLen& a, const SeqLen& b) { return a.k < b.k; });
  EXPECT_EQ(shuffled, lengths_of(list + "}"));
}

TEST(BatchMapping, RefusesDistributionsThatItCannotMean) {
  const auto error_in = [](const std::string& text) {
    return error_of("{lengths: {" + text + "}, count: 1}");
  };
  EXPECT_EQ(error_in("normal: {mean: 5, stddev: 2}"), "accepted");
  EXPECT_EQ(error_in("normal: {mean: 4k, stddev: 1k}"), "accepted");
  EXPECT_EQ(error_in("quantiles: [[0, 16], [0.5, 800], [1, 8k]]"), "accepted");
  EXPECT_EQ(error_in("bimodal: {medians: [200, 8k], sigma: 0.3, second: 0.1}, clip: [16, 9k]"), "accepted");
  EXPECT_EQ(error_in("longtail: {median: 800, exponent: 1.2}"), "accepted");
  EXPECT_THAT(error_in("normal: {mean: 5, sigma: 2}"), HasSubstr("'sigma'"));
  EXPECT_THAT(error_in("zipf: {exponent: 0, max: 5}"), HasSubstr("expected a number from 0.1 to 16"));
  EXPECT_THAT(error_in("zipf: {exponent: 1}"), HasSubstr("'max' is missing"));
  EXPECT_THAT(error_in("bimodal: {medians: 5, sigma: 1, second: 0.5}"), HasSubstr("expected two lengths"));
  EXPECT_THAT(error_in("quantiles: [[0, 16]]"), HasSubstr("expected pairs"));
  EXPECT_THAT(error_in("quantiles: [[0, 16], 800]"), HasSubstr("expected pairs"));
  EXPECT_THAT(error_in("quantiles: [[0.1, 16], [1, 800]]"), HasSubstr("must begin with 0 and end with 1"));
  EXPECT_THAT(error_in("quantiles: [[0, 16], [0.5, 8], [1, 800]]"), HasSubstr("stands behind [0, 16]"));
  EXPECT_THAT(error_in("quantiles: [[0, 0], [1, 800]]"), HasSubstr("expected an integer from 1"));
  EXPECT_THAT(error_of("{lengths: 5, count: 1, total: 9}"), HasSubstr("stands beside 'count'"));
  EXPECT_THAT(error_of("{lengths: [5, 6], total: 9}"), HasSubstr("stands beside a list"));
  EXPECT_THAT(error_of("{lengths: 0, total: 9}"), HasSubstr("1048576 sequences have 0 keys"));
  EXPECT_THAT(error_of("{lengths: 5, count: 1, order: up}"), HasSubstr("expected as_drawn, ascending"));
}

TEST(BatchMapping, LengthsGiveQueriesAndKeys) {
  EXPECT_EQ(lengths_of("{lengths: 512, count: 4}"), parse_batch_spec("4q512"));
  EXPECT_EQ(lengths_of("{lengths: [1, 2, 3, 4]}"), parse_batch_spec("q1_q2_q3_q4"));
  EXPECT_EQ(lengths_of("{lengths: [7, 0], count: 2}"), parse_batch_spec("q7_q0"));
  EXPECT_EQ(lengths_of("{lengths: {constant: 5}, count: 3}"), parse_batch_spec("3q5"));
  EXPECT_EQ(lengths_of("{lengths: {constant: 5, clip: [6, 9]}, count: 1}"), parse_batch_spec("q6"));
  EXPECT_EQ(lengths_of("{lengths: 9, count: 0}"), parse_batch_spec("0q0"));
}

TEST(BatchMapping, KeysAreGivenOrFollowFromContext) {
  EXPECT_EQ(lengths_of("{q: 1, s: [5, 6]}"), parse_batch_spec("q1s5_q1s6"));
  EXPECT_EQ(lengths_of("{q: [1, 2], context: 10}"), parse_batch_spec("q1s11_q2s12"));
  EXPECT_EQ(lengths_of("{q: 5, s: 3, count: 1}"), parse_batch_spec("q5s3"));
  for (const SeqLen& s : lengths_of("{q: {uniform: [1, 8]}, context: {uniform: [0, 100]}, count: 200}")) {
    EXPECT_GE(s.k, s.q);
    EXPECT_LE(s.k, s.q + 100);
  }
}

TEST(BatchMapping, DrawsQueriesAndKeysApart) {
  int equal = 0;
  for (const SeqLen& s : lengths_of("{q: {uniform: [1, 999]}, s: {uniform: [1, 999]}, count: 50}")) {
    equal += s.q == s.k ? 1 : 0;
  }
  EXPECT_LE(equal, 2);
}

TEST(BatchMapping, DrawsFromTheFilesSeedUnlessItHasItsOwn) {
  const std::string drawn = "{lengths: {uniform: [1, 100000]}, count: 8}";
  const std::string seeded = "{lengths: {uniform: [1, 100000]}, count: 8, seed: 5}";
  EXPECT_EQ(lengths_of(drawn), lengths_of(drawn, 5));
  EXPECT_NE(lengths_of(drawn), lengths_of(drawn, 6));
  EXPECT_EQ(lengths_of(seeded, 6), lengths_of(drawn, 5));
}

TEST(BatchMapping, IsNamedByItsSpec) {
  const SweepFile file = parse_batch("{lengths: {uniform: [1, 4000]}, count: 20}");
  const Setting& batch = file.sweeps.at(0).fixed.at(0);
  CaseParams params;
  batch.apply(params);
  EXPECT_EQ(batch.text, format_batch_spec(params.seqs));
  EXPECT_EQ(parse_batch_spec(batch.text), params.seqs);
}

TEST(BatchMapping, RefusesWhatItCannotMean) {
  EXPECT_THAT(error_of("{lengths: 512}"), HasSubstr("t.yaml:4:12: error: key 'batch': 'count' is missing"));
  EXPECT_THAT(error_of("{q: 1, count: 2}"),
              HasSubstr("either 'lengths', or 'q' and 's', or 'q' and 'context'"));
  EXPECT_THAT(error_of("{lengths: 4, q: 1, count: 2}"), HasSubstr("expected either 'lengths'"));
  EXPECT_THAT(error_of("{q: 1, s: 2, context: 3, count: 2}"), HasSubstr("expected either 'lengths'"));
  EXPECT_THAT(error_of("{lengths: [1, 2], count: 3}"), HasSubstr("lists 2 sequences, but there are to be 3"));
  EXPECT_THAT(error_of("{q: [1, 2], s: [3]}"), HasSubstr("4:27: error: key 's': lists 1 sequences"));
  EXPECT_THAT(error_of("{lengths: []}"), HasSubstr("the list is empty"));
  EXPECT_THAT(error_of("{lengths: [1, x]}"),
              HasSubstr("4:26: error: key 'lengths': got 'x', expected an integer"));
  EXPECT_THAT(error_of("{lengths: 1x, count: 1}"), HasSubstr("got '1x', expected an integer, a list"));
  EXPECT_THAT(error_of("{lengths: -1, count: 1}"), HasSubstr("got '-1', expected an integer from 0"));
  EXPECT_THAT(error_of("{lengths: 5, count: 1048577}"), HasSubstr("expected an integer from 0 to 1048576"));
  EXPECT_THAT(error_of("{lengths: 5, cuont: 1}"), HasSubstr("did you mean 'count'?"));
  EXPECT_THAT(error_of("{lengths: {unifrom: [1, 2]}, count: 1}"), HasSubstr("did you mean 'uniform'?"));
  EXPECT_THAT(error_of("{lengths: {clip: [1, 2]}, count: 1}"), HasSubstr("names no distribution"));
  EXPECT_THAT(error_of("{lengths: {constant: 1, uniform: [1, 2]}, count: 1}"),
              HasSubstr("beside 'constant'"));
  EXPECT_THAT(error_of("{lengths: {uniform: [5, 2]}, count: 1}"), HasSubstr("wrong way round"));
  EXPECT_THAT(error_of("{lengths: {uniform: [5]}, count: 1}"), HasSubstr("expected two integers, [lo, hi]"));
  EXPECT_THAT(error_of("{lengths: {uniform: 5}, count: 1}"), HasSubstr("expected two integers, [lo, hi]"));
  EXPECT_THAT(error_of("{lengths: {lognormal: {median: 5}}, count: 1}"), HasSubstr("'sigma' is missing"));
  EXPECT_THAT(error_of("{lengths: {lognormal: 5}, count: 1}"), HasSubstr("expected a mapping"));
  EXPECT_THAT(error_of("{lengths: {lognormal: {median: 5, sigma: .nan}}, count: 1}"),
              HasSubstr("got '.nan'"));
  EXPECT_THAT(error_of("{lengths: {lognormal: {median: inf, sigma: 1}}, count: 1}"), HasSubstr("got 'inf'"));
  EXPECT_THAT(error_of("{q: 1073741824, context: 1, count: 1}"), HasSubstr("has 1073741825 keys"));
  EXPECT_THAT(error_of("{lengths: 1073741824, count: 2}"), HasSubstr("in all, at most 2147483647"));
  EXPECT_THAT(error_of("{lengths: 4, count: 1, seed: -1}"), HasSubstr("key 'seed': got '-1'"));
}

TEST(Lengths, AShareOfThemIsZeroWhateverTheClip) {
  LengthDistribution d = uniform(10, 20);
  const std::vector<int64_t> plain = draw(d, 3, 2000);
  d.clip_lo = 10;
  d.zeros = 0.25;
  const std::vector<int64_t> mixed = draw(d, 3, 2000);
  const auto zeros = std::count(mixed.begin(), mixed.end(), 0);
  EXPECT_NEAR(static_cast<double>(zeros), 500, 80);
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    EXPECT_TRUE(mixed[i] == 0 || mixed[i] == plain[i]) << "the others stay";
  }
  const auto lengths = lengths_of("{q: 1, context: {normal: {mean: 50, stddev: 9}, zeros: 1}, count: 3}");
  for (const SeqLen& s : lengths) EXPECT_EQ(s.k, 1);
  EXPECT_THAT(error_of("{lengths: {constant: 5, zeros: 1.5}, count: 3}"), HasSubstr("0 to 1"));
}

}  // namespace
}  // namespace attnbench
