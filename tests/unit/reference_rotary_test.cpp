// Rotary embedding compared with complex multiplication, pair by pair.
#include "reference/rotary.h"

#include <gtest/gtest.h>

#include <complex>
#include <stdexcept>
#include <vector>

namespace attnbench::reference {
namespace {

TEST(Rotate, TurnsPairsAsComplexNumbers) {
  const std::vector<double> angles = {0.3, -1.2, 2.5};
  std::vector<float> cos, sin;
  for (const double a : angles) {
    cos.push_back(static_cast<float>(std::cos(a)));
    sin.push_back(static_cast<float>(std::sin(a)));
  }
  const std::vector<double> before = {1, -2, 3, 0.5, -0.25, 4, 7, 8};  // the last two channels stay
  for (const bool interleaved : {false, true}) {
    std::vector<double> row = before, terms(8, -1);
    rotate(cos, sin, interleaved, row, terms);
    for (int i = 0; i < 3; ++i) {
      const int a = interleaved ? 2 * i : i;
      const int b = interleaved ? 2 * i + 1 : i + 3;
      const std::complex<double> turned =
          std::complex<double>(before[a], before[b]) * std::complex<double>(cos[i], sin[i]);
      EXPECT_NEAR(row[a], turned.real(), 1e-15) << i << interleaved;
      EXPECT_NEAR(row[b], turned.imag(), 1e-15) << i << interleaved;
      EXPECT_NEAR(terms[a], std::abs(before[a] * cos[i]) + std::abs(before[b] * sin[i]), 1e-15);
      EXPECT_NEAR(terms[b], std::abs(before[a] * sin[i]) + std::abs(before[b] * cos[i]), 1e-15);
    }
    for (int c = 6; c < 8; ++c) {
      EXPECT_EQ(row[c], before[c]);
      EXPECT_EQ(terms[c], 0);
    }
  }
}

TEST(Rotate, ByHand) {
  const std::vector<float> cos = {0, 1}, sin = {1, 0};  // a quarter turn, no turn
  std::vector<double> row = {1, 2, 3, 4};
  rotate(cos, sin, false, row);
  EXPECT_EQ(row, (std::vector<double>{-3, 2, 1, 4}));
  row = {1, 2, 3, 4};
  rotate(cos, sin, true, row);
  EXPECT_EQ(row, (std::vector<double>{-2, 1, 3, 4}));
}

TEST(Rotate, RefusesSizesThatDoNotFit) {
  const std::vector<float> two = {1, 1}, one = {1};
  std::vector<double> row(3), terms(2);
  EXPECT_THROW(rotate(two, two, false, row), std::invalid_argument);
  EXPECT_THROW(rotate(one, two, false, row), std::invalid_argument);
  EXPECT_THROW(rotate(one, one, false, row, terms), std::invalid_argument);
  EXPECT_NO_THROW(rotate(one, one, false, row));
}

}  // namespace
}  // namespace attnbench::reference
