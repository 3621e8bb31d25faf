// The cpu kernel's own arithmetic: exponential, tanh, conversions, sums over lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/fast_exp.h"

namespace attnbench::cpu {
namespace {

TEST(CpuMath, Exp2IsWithinItsDeclaredError) {
  double worst = 0;
  // Every 61st float of [-126, -2^-30]: about four million values with all exponents and all fraction bits.
  for (uint32_t u = float_bits(0x1p-30f); u <= float_bits(126.0f); u += 61) {
    const float x = -bits_float(u);
    const double exact = std::exp2(double{x});
    worst = std::max(worst, std::abs(exp2_float(x) / exact - 1));
  }
  EXPECT_LE(worst, kExpRelErr);
  EXPECT_GE(worst, kExpRelErr / 16) << "declare what it does";
}

TEST(CpuMath, Exp2AtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp2_float(0.0f), 1.0f);
  EXPECT_EQ(exp2_float(-0.0f), 1.0f);
  EXPECT_EQ(exp2_float(-1.0f), 0.5f);
  EXPECT_EQ(exp2_float(-126.0f), 0x1p-126f);
  EXPECT_EQ(exp2_float(-127.0f), 0.0f);
  EXPECT_EQ(exp2_float(-1e30f), 0.0f);
  EXPECT_EQ(exp2_float(-kInfinity), 0.0f);
  for (const uint32_t nan : {0x7fc00000u, 0x7fffffffu, 0x7fc0deadu, 0xffc00145u, 0x7f800001u}) {
    EXPECT_TRUE(std::isnan(exp2_float(bits_float(nan)))) << std::hex << nan;
  }
}

TEST(CpuMath, TanhIsAccurate) {
  for (uint32_t u = float_bits(0x1p-20f); u <= float_bits(50.0f); u += 101) {
    for (const float x : {bits_float(u), -bits_float(u)}) {
      const double exact = std::tanh(double{x});
      ASSERT_LE(std::abs(tanh_vec(splat(x))[0] / exact - 1), 3e-7) << x;
    }
  }
  EXPECT_EQ(tanh_vec(splat(0.0f))[0], 0.0f);
  EXPECT_EQ(tanh_vec(splat(std::numeric_limits<float>::infinity()))[0], 1.0f);
  EXPECT_EQ(tanh_vec(splat(-std::numeric_limits<float>::infinity()))[0], -1.0f);
  EXPECT_TRUE(std::isnan(tanh_vec(splat(std::nanf("")))[0]));
}

/// Both readers of T give the contract's bits for all patterns.
template <class T>
void expect_contract_bits() {
  using Storage = typename T::Storage;
  for (uint32_t first = 0; first < 1u << 8 * sizeof(Storage); first += kPanel) {
    Storage in[kPanel];
    for (int i = 0; i < kPanel; ++i) in[i] = static_cast<Storage>(first + i);
    const VecPair pair = T::load_pair(in);
    float slots[kPanel];
    store(slots, pair.a);
    store(slots + kLanes, pair.b);
    for (int i = 0; i < kPanel; ++i) {
      const uint32_t expected = float_bits(T::to_float(in[i]));
      ASSERT_EQ(float_bits(slots[T::pair_slot(i)]), expected) << in[i];
      const Vec8 eight = T::load8(in + i / 8 * 8);
      ASSERT_EQ(float_bits(eight[i % 8]), expected) << in[i];
    }
  }
}

TEST(CpuMath, ConversionsMatchTheContract) {
  expect_contract_bits<Bf16>();
  expect_contract_bits<Fp16>();
  expect_contract_bits<E4m3>();
  expect_contract_bits<E5m2>();
  expect_contract_bits<Int8>();
}

TEST(CpuMath, PartialLoadsPadWithZeros) {
  const std::vector<uint16_t> ones(5, float_to_bf16(1.0f));
  const Vec8 x = load8_part<Bf16>(ones.data(), 5);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(x[i], i < 5 ? 1.0f : 0.0f);
  const VecPair y = load_pair_part<Bf16>(ones.data(), 5);
  EXPECT_EQ(sum_lanes(y.a) + sum_lanes(y.b), 5.0f);
}

TEST(CpuMath, LanesAreSummedAndTransposed) {
  Vec v[8];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < kLanes; ++j) v[i][j] = static_cast<float>(i * 100 + j);
  }
  const Vec8 sums = sum_lanes_of_8(v);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(sums[i], static_cast<float>(kLanes * i * 100 + kLanes * (kLanes - 1) / 2));
    EXPECT_EQ(sum_lanes(v[i]), sums[i]);
    EXPECT_EQ(max_lanes(v[i]), static_cast<float>(i * 100 + kLanes - 1));
  }
  Vec8 m[8];
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) m[i][j] = static_cast<float>(i * 8 + j);
  }
  transpose_8x8(m);
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(m[i][j], static_cast<float>(j * 8 + i));
  }
}

}  // namespace
}  // namespace attnbench::cpu
