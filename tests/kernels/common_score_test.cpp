// Terms of the score and the end of a row, on literal examples and in both precisions.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/common/score.h"

namespace attnbench {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(CommonScore, SlopesPerHeadAndPerSequence) {
  const float slopes[] = {0.5f, 0.25f, 99.0f, 8.0f, 4.0f};
  AttentionParams p{};
  EXPECT_EQ(alibi_slope(p, 1, 1), 0.0f);
  p.features = kAlibi;
  p.alibi_slopes = slopes;
  EXPECT_EQ(alibi_slope(p, 0, 1), 0.25f);
  EXPECT_EQ(alibi_slope(p, 1, 1), 0.25f);
  p.alibi_stride_batch = 3;
  EXPECT_EQ(alibi_slope(p, 0, 0), 0.5f);
  EXPECT_EQ(alibi_slope(p, 1, 1), 4.0f);
}

TEST(CommonScore, AlibiLowersWhatIsFar) {
  EXPECT_EQ(alibi_bias(0.5f, 0, false), 0.0f);
  EXPECT_EQ(alibi_bias(0.5f, 9, false), -4.5f);
  EXPECT_EQ(alibi_bias(0.5f, 9, true), -1.5f);
  EXPECT_EQ(alibi_bias(0.0f, 9, true), 0.0f);
}

TEST(CommonScore, SinksPerHead) {
  const float sinks[] = {1.0f, -kInfinity};
  AttentionParams p{};
  EXPECT_EQ(sink_of(p, 0), -kInfinity);
  p.features = kSinks;
  p.sinks = sinks;
  EXPECT_EQ(sink_of(p, 0), 1.0f);
  EXPECT_EQ(sink_of(p, 1), -kInfinity);
}

template <class Real>
void expect_ends() {
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();
  const Real tolerance = 8 * std::numeric_limits<Real>::epsilon();
  const auto expect_end = [&](const RowEnd<Real>& end, Real divisor, Real lse) {
    EXPECT_NEAR(end.divisor / divisor, 1, tolerance);
    EXPECT_NEAR(end.lse, lse, tolerance * std::abs(lse));
  };
  // Without a sink: the sum itself, exactly.
  EXPECT_EQ(end_row<Real>(2, 3, -kInf).divisor, 3);
  EXPECT_EQ(end_row<Real>(2, 3, -kInf).lse, 2 + std::log(Real{3}));
  EXPECT_EQ(end_row<Real>(-kInf, 0, -kInf).divisor, 0);
  EXPECT_EQ(end_row<Real>(-kInf, 0, -kInf).lse, -kInf);
  // A sink below and above the maximum.
  expect_end(end_row<Real>(2, 3, 1), 3 + std::exp(Real{-1}), 2 + std::log(3 + std::exp(Real{-1})));
  expect_end(end_row<Real>(2, 3, 4), 3 + std::exp(Real{2}), 2 + std::log(3 + std::exp(Real{2})));
  // Sinks so far away that exp(sink - max) overflows or underflows to 0.
  expect_end(end_row<Real>(5000, 3, -5000), 3, 5000 + std::log(Real{3}));
  EXPECT_EQ(end_row<Real>(-5000, 3, 5000).divisor, kInf);
  EXPECT_EQ(end_row<Real>(-5000, 3, 5000).lse, 5000);
  // No key: O = 0 / inf, LSE = sink.
  EXPECT_EQ(end_row<Real>(-kInf, 0, Real{1.25}).divisor, kInf);
  EXPECT_EQ(end_row<Real>(-kInf, 0, Real{1.25}).lse, Real{1.25});
  // Poison shows.
  for (const Real sink : {-kInf, Real{1}, kNan}) {
    EXPECT_TRUE(std::isnan(end_row<Real>(2, kNan, sink).divisor));
    EXPECT_TRUE(std::isnan(end_row<Real>(2, kNan, sink).lse));
  }
  EXPECT_TRUE(std::isnan(end_row<Real>(2, 3, kNan).divisor));
  EXPECT_TRUE(std::isnan(end_row<Real>(2, 3, kNan).lse));
}

TEST(CommonScore, EndsOfRows) {
  expect_ends<float>();
  expect_ends<double>();
}

}  // namespace
}  // namespace attnbench
