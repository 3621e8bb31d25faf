// The generator, and rows of values from it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "harness/values/values.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

constexpr Profile kProfiles[] = {Profile::kNormal, Profile::kPeaked, Profile::kOutlier,
                                 Profile::kLarge,  Profile::kHuge,   Profile::kCorners};
constexpr Tensor kTensors[] = {Tensor::kQ, Tensor::kQv, Tensor::kK, Tensor::kV, Tensor::kNewK, Tensor::kNewV};

void expect_words(const Philox4& got, const std::vector<uint32_t>& expected) {
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got.x[i], expected[i]) << "word " << i;
}

// The known-answer vectors of the Random123 distribution for philox4x32-10 (tests/kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  expect_words(philox4x32(0, 0, 0, 0, 0), {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  expect_words(philox4x32(~0u, ~0u, ~0u, ~0u, ~uint64_t{0}),
               {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  expect_words(philox4x32(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0x299f31d0a4093822u),
               {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST(ValuesTest, RowEqualsQuadsForEveryHeadDim) {
  const float untouched = -12345.0f;
  for (const Profile profile : kProfiles) {
    for (const Tensor tensor : kTensors) {
      const ValueSpec spec{0xfedcba9876543210u, profile};
      // Positions around the special one of the outlier profile, 13 mod 64, and coordinates with their top
      // bits set.
      for (const uint32_t pos : {0u, 2u, 13u, 77u, 0x7fffffffu}) {
        std::vector<float> expected(256);
        for (uint32_t quad = 0; quad < 64; ++quad) {
          values_of_quad(spec, tensor, 0x7ffffffeu, pos, 130, quad, expected.data() + 4 * quad);
        }
        for (int head_dim = 1; head_dim <= 256; ++head_dim) {
          const auto n = static_cast<std::size_t>(head_dim);
          std::vector<float> row(n + 1, untouched);
          value_row(spec, tensor, 0x7ffffffeu, pos, 130, head_dim, row.data());
          ASSERT_EQ(std::memcmp(row.data(), expected.data(), n * sizeof(float)), 0)
              << profile_name(profile) << " head_dim " << head_dim;
          ASSERT_EQ(row[n], untouched) << "wrote past the row, head_dim " << head_dim;
        }
      }
    }
  }
}

TEST(ValuesTest, NormalHasMeanZeroAndDeviationOne) {
  constexpr int kManyRows = 4000;
  constexpr int kLongRow = 256;
  std::vector<float> row(kLongRow);
  double sum = 0, squares = 0, next = 0;
  for (int r = 0; r < kManyRows; ++r) {
    value_row({}, Tensor::kK, 0, static_cast<uint32_t>(r), 0, kLongRow, row.data());
    for (int c = 0; c < kLongRow; ++c) {
      const double x = row[static_cast<std::size_t>(c)];
      ASSERT_LT(std::fabs(x), 3.0);
      ASSERT_EQ(x * 2048, std::nearbyint(x * 2048));
      sum += x;
      squares += x * x;
      if (c > 0) next += x * row[static_cast<std::size_t>(c - 1)];
    }
  }
  constexpr double kCount = kManyRows * kLongRow;
  const double standard_error = 1 / std::sqrt(kCount);
  EXPECT_LT(std::fabs(sum / kCount), 5 * standard_error);
  EXPECT_NEAR(squares / kCount, 1.0, 5 * standard_error);   // a flat-topped bell: variance of x^2 below 1
  EXPECT_LT(std::fabs(next / kCount), 5 * standard_error);  // neighbours are uncorrelated
}

TEST(ValuesTest, EachCoordinateChangesTheRow) {
  const auto row = [](uint64_t seed, Tensor tensor, uint32_t seq, uint32_t pos, uint32_t head) {
    std::vector<float> values(8);
    value_row({seed, Profile::kNormal}, tensor, seq, pos, head, 8, values.data());
    return values;
  };
  std::set<std::vector<float>> rows;
  for (const Tensor tensor : kTensors) rows.insert(row(1, tensor, 0, 0, 0));
  rows.insert(row(2, Tensor::kQ, 0, 0, 0));
  rows.insert(row(uint64_t{1} << 32, Tensor::kQ, 0, 0, 0));
  rows.insert(row(1, Tensor::kQ, 1, 0, 0));
  rows.insert(row(1, Tensor::kQ, 0, 1, 0));
  rows.insert(row(1, Tensor::kQ, 0, 0, 1));
  EXPECT_EQ(rows.size(), std::size(kTensors) + 5);
}

TEST(ValuesTest, ProfilesScaleByPowersOfTwo) {
  std::vector<float> normal(64), scaled(64);
  const auto ratio = [&](Profile profile, Tensor tensor, uint32_t pos, std::size_t channel) {
    value_row({1, Profile::kNormal}, tensor, 0, pos, 0, 64, normal.data());
    value_row({1, profile}, tensor, 0, pos, 0, 64, scaled.data());
    return scaled[channel] / normal[channel];
  };
  EXPECT_EQ(ratio(Profile::kPeaked, Tensor::kQ, 3, 1), 8);
  EXPECT_EQ(ratio(Profile::kPeaked, Tensor::kK, 3, 1), 1);
  EXPECT_EQ(ratio(Profile::kOutlier, Tensor::kQ, 3, 37), 8);
  EXPECT_EQ(ratio(Profile::kOutlier, Tensor::kQ, 3, 36), 1);
  EXPECT_EQ(ratio(Profile::kOutlier, Tensor::kV, 13, 36), 8);
  EXPECT_EQ(ratio(Profile::kOutlier, Tensor::kNewV, 12, 37), 1);
  EXPECT_EQ(ratio(Profile::kLarge, Tensor::kQ, 3, 1), 16);
  EXPECT_EQ(ratio(Profile::kLarge, Tensor::kNewK, 3, 1), 8);
  EXPECT_EQ(ratio(Profile::kLarge, Tensor::kV, 3, 1), 256);
}

}  // namespace
}  // namespace attnbench
