#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/merge.h"

namespace attnbench::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(ReferenceMerge, WeighsByTheExponentialOfTheLse) {
  MergedRow r;
  const double lse[] = {std::log(3.0) + 700, std::log(1.0) + 700};  // exp would overflow
  const double o[] = {1, 2, 5, -2};
  merge_states(lse, o, 2, r);
  EXPECT_NEAR(r.o[0], 2.0, 1e-12);  // at 700, the logarithm is exact to 2^-43
  EXPECT_NEAR(r.o[1], 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(r.lse, std::log(4.0) + 700);
  EXPECT_NEAR(r.weights[0], 0.75, 1e-13);
}

TEST(ReferenceMerge, StatesWithoutKeysWeighNothing) {
  MergedRow r;
  const double lse[] = {-kInf, -5.0, -kInf};
  const double o[] = {NAN, 7, NAN};
  merge_states(lse, o, 1, r);
  EXPECT_EQ(r.o[0], 7.0);
  EXPECT_EQ(r.lse, -5.0);
  const double none[] = {-kInf, -kInf};
  const double junk[] = {NAN, kInf};
  merge_states(none, junk, 1, r);
  EXPECT_EQ(r.o[0], 0.0);
  EXPECT_EQ(r.lse, -kInf);
}

TEST(ReferenceMerge, RefusesWhatIsNoState) {
  MergedRow r;
  const double o[] = {1, 2};
  const double nan[] = {NAN, 0.0};
  const double inf[] = {0.0, kInf};
  EXPECT_THROW(merge_states(nan, o, 1, r), std::invalid_argument);
  EXPECT_THROW(merge_states(inf, o, 1, r), std::invalid_argument);
  EXPECT_THROW(merge_states(std::span<const double>(), o, 1, r), std::invalid_argument);
  EXPECT_THROW(merge_states(std::span(inf, 1), o, 1, r), std::invalid_argument);
}

}  // namespace
}  // namespace attnbench::reference
