// The keep mask of contract/dropout.h.
#include "kernels/contract/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attnbench {
namespace {

/// Known answers of Philox4x32-10, from the test vectors of Random123 1.14 (tests/kat_vectors).
TEST(Philox, KnownAnswers) {
  const auto expect = [](const Philox4& got, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    EXPECT_EQ(got.x[0], a);
    EXPECT_EQ(got.x[1], b);
    EXPECT_EQ(got.x[2], c);
    EXPECT_EQ(got.x[3], d);
  };
  expect(philox4x32(0, 0, 0, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect(philox4x32(~0u, ~0u, ~0u, ~0u, ~0ull), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect(philox4x32(0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0x299f31d0a4093822ull), 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Dropout, KeepsTheStatedShare) {
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const uint32_t threshold = dropout_threshold(p);
    EXPECT_EQ(threshold, static_cast<uint32_t>(std::floor(static_cast<double>(p) * 0x1p32)));
    int kept = 0;
    constexpr int kKeys = 40000;
    for (int key = 0; key < kKeys; ++key) kept += dropout_keeps(7, 3, 2, 11, key, threshold);
    EXPECT_NEAR(kept, kKeys * (1 - p), 6 * std::sqrt(kKeys * p * (1 - p)));
  }
  EXPECT_EQ(dropout_scale(0.5f), 2.0f);
}

/// Each coordinate alone changes the mask, and so does every bit of it.
TEST(Dropout, EveryCoordinateCounts) {
  const auto mask = [](uint64_t seed, uint64_t offset, int head, int64_t token) {
    uint64_t bits = 0;
    for (int key = 0; key < 64; ++key) {
      bits = 2 * bits + dropout_keeps(seed, offset, head, token, key, 0x80000000u);
    }
    return bits;
  };
  const uint64_t base = mask(1, 1, 1, 1);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(mask(1 ^ uint64_t{1} << bit, 1, 1, 1), base) << "seed " << bit;
    EXPECT_NE(mask(1, 1 ^ uint64_t{1} << bit, 1, 1), base) << "offset " << bit;
    if (bit >= 31) continue;  // both are 31 bits wide
    EXPECT_NE(mask(1, 1, 1 ^ 1 << bit, 1), base) << "head " << bit;
    EXPECT_NE(mask(1, 1, 1, 1 ^ int64_t{1} << bit), base) << "token " << bit;
  }
}

}  // namespace
}  // namespace attnbench
