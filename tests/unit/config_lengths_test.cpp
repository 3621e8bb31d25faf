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

}  // namespace
}  // namespace attnbench
