// Conversions of contract/dtype.h, compared with an independent rounding in double.
#include "kernels/contract/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

namespace attnbench {
namespace {

/// A 16-bit floating format: fraction bits and exponent bias (IEEE 754-2019, section 3.4).
struct Format {
  int fraction_bits;
  int bias;
  uint16_t (*from_float)(float);
  float (*to_float)(uint16_t);

  uint16_t infinity() const { return static_cast<uint16_t>(0x7fff >> fraction_bits << fraction_bits); }
  uint16_t quiet_bit() const { return static_cast<uint16_t>(1 << (fraction_bits - 1)); }
  bool is_nan(uint16_t h) const { return (h & 0x7fff) > infinity(); }
  bool is_finite(uint16_t h) const { return (h & 0x7fff) < infinity(); }
};

/// For the names of tests. The default prints addresses, which change between runs.
void PrintTo(const Format& f, std::ostream* out) { *out << (f.fraction_bits == 7 ? "bf16" : "fp16"); }

const Format kBf16Format{7, 127, float_to_bf16, bf16_to_float};
const Format kFp16Format{10, 15, float_to_fp16, fp16_to_float};

/// The value of a finite pattern, from the definition of the format.
double decode(const Format& f, uint16_t h) {
  const int exponent = (h & 0x7fff) >> f.fraction_bits;
  const int fraction = h & ((1 << f.fraction_bits) - 1);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - f.bias - f.fraction_bits)
                    : std::ldexp(fraction + (1 << f.fraction_bits), exponent - f.bias - f.fraction_bits);
  return h & 0x8000 ? -magnitude : magnitude;
}

/// `x` rounded to the format, ties to even. It is scaled so that the spacing of the format is 1, rounded by
/// the floating-point unit, and scaled back. Only the rounding is inexact in double.
double round_in_double(const Format& f, float x) {
  const double value = x;
  int exponent = 0;
  std::frexp(value, &exponent);  // |value| in [2^(exponent-1), 2^exponent)
  const int least = 2 - f.bias;  // exponent of the smallest normal number, as in frexp
  const int spacing = std::max(exponent, least) - 1 - f.fraction_bits;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -spacing)), spacing);
  const double largest = decode(f, static_cast<uint16_t>(f.infinity() - 1));
  return std::fabs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                      : rounded;
}

void expect_rounds_right(const Format& f, float x) {
  const uint16_t h = f.from_float(x);
  const double expected = round_in_double(f, x);
  const double got = f.is_finite(h)
                         ? decode(f, h)
                         : std::copysign(std::numeric_limits<double>::infinity(), h & 0x8000 ? -1.0 : 1.0);
  ASSERT_FALSE(f.is_nan(h)) << std::hexfloat << x;
  ASSERT_EQ(got, expected) << std::hexfloat << x;
  ASSERT_EQ((h & 0x8000) != 0, std::signbit(x)) << std::hexfloat << x;
}

class Dtype16Test : public testing::TestWithParam<Format> {};

TEST_P(Dtype16Test, EveryPatternDecodesByDefinition) {
  const Format& f = GetParam();
  for (int i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float x = f.to_float(h);
    if (f.is_nan(h)) {
      ASSERT_TRUE(std::isnan(x)) << i;
    } else if (!f.is_finite(h)) {
      ASSERT_TRUE(std::isinf(x)) << i;
    } else {
      ASSERT_EQ(static_cast<double>(x), decode(f, h)) << i;
    }
    ASSERT_EQ(std::signbit(x), (h & 0x8000) != 0) << i;
  }
}

TEST_P(Dtype16Test, EveryPatternRoundTrips) {
  const Format& f = GetParam();
  for (int i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const auto expected = static_cast<uint16_t>(f.is_nan(h) ? h | f.quiet_bit() : h);
    ASSERT_EQ(f.from_float(f.to_float(h)), expected) << i;
  }
}

TEST_P(Dtype16Test, RoundsValuesTiesAndTheirNeighbours) {
  const Format& f = GetParam();
  for (int i = 0; i < f.infinity(); ++i) {
    const double here = decode(f, static_cast<uint16_t>(i));
    // Past the largest number, the tie is with the power of two that the format lacks.
    const double next = i + 1 < f.infinity() ? decode(f, static_cast<uint16_t>(i + 1))
                                             : 2 * here - decode(f, static_cast<uint16_t>(i - 1));
    const auto tie = static_cast<float>((here + next) / 2);
    for (const float x : {static_cast<float>(here), tie, std::nextafterf(tie, 0.0f),
                          std::nextafterf(tie, std::numeric_limits<float>::infinity())}) {
      if (!std::isfinite(x)) continue;
      ASSERT_NO_FATAL_FAILURE(expect_rounds_right(f, x));
      ASSERT_NO_FATAL_FAILURE(expect_rounds_right(f, -x));
    }
  }
}

TEST_P(Dtype16Test, RoundsRandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000000; ++i) {
    const float x = bits_float(static_cast<uint32_t>(random()));
    if (!std::isfinite(x)) continue;
    ASSERT_NO_FATAL_FAILURE(expect_rounds_right(GetParam(), x));
  }
}

TEST_P(Dtype16Test, RoundsTheEnds) {
  const Format& f = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f.from_float(infinity), f.infinity());
  EXPECT_EQ(f.from_float(-infinity), f.infinity() | 0x8000);
  EXPECT_EQ(f.from_float(std::numeric_limits<float>::max()), f.infinity());
  EXPECT_EQ(f.from_float(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f.from_float(-0.0f), 0x8000);
  // NaN stays NaN even if all its set bits are in the part that is cut off.
  for (const uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xff800001u, 0xffffffffu, 0x7fffffffu}) {
    const uint16_t h = f.from_float(bits_float(nan));
    EXPECT_TRUE(f.is_nan(h)) << nan;
    EXPECT_TRUE(h & f.quiet_bit()) << nan;
    EXPECT_EQ(h >> 15, nan >> 31) << nan;
  }
}

INSTANTIATE_TEST_SUITE_P(Bf16, Dtype16Test, testing::Values(kBf16Format));
INSTANTIATE_TEST_SUITE_P(Fp16, Dtype16Test, testing::Values(kFp16Format));

/// The finite values of e4m3 in order of their patterns 0x00..0x7e, by the definition of the format.
std::vector<double> e4m3_values() {
  std::vector<double> values;
  for (int h = 0; h < 0x7f; ++h) {
    const int exponent = h >> 3, fraction = h & 7;
    values.push_back(exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10));
  }
  return values;
}

TEST(DtypeTest, E4m3DecodesByDefinitionAndRoundTrips) {
  const std::vector<double> values = e4m3_values();
  EXPECT_EQ(values.back(), 448.0);
  for (int h = 0; h < 0x7f; ++h) {
    const auto pattern = static_cast<uint8_t>(h), negative = static_cast<uint8_t>(h | 0x80);
    EXPECT_EQ(e4m3_to_float(pattern), values[static_cast<std::size_t>(h)]) << h;
    EXPECT_EQ(e4m3_to_float(negative), -values[static_cast<std::size_t>(h)]) << h;
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(pattern)), pattern);
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(negative)), negative);
  }
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)) && std::isnan(e4m3_to_float(0xff)));
  EXPECT_TRUE(std::isnan(e4m3_to_float(float_to_e4m3(NAN))));
}

TEST(DtypeTest, E4m3RoundsToNearestEvenAndSaturates) {
  const std::vector<double> values = e4m3_values();
  for (std::size_t h = 0; h + 1 < values.size(); ++h) {
    const auto middle = static_cast<float>((values[h] + values[h + 1]) / 2);
    EXPECT_EQ(float_to_e4m3(middle), h % 2 == 0 ? h : h + 1) << "a tie goes to the even pattern";
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0f)), h);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9f)), h + 1);
  }
  for (const float x : {449.0f, 464.0f, 1e9f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e4m3(x), 0x7e);
    EXPECT_EQ(float_to_e4m3(-x), 0xfe);
  }
}

/// The finite values of e5m2 in order of their patterns 0x00..0x7b, by the definition of the format.
std::vector<double> e5m2_values() {
  std::vector<double> values;
  for (int h = 0; h < 0x7c; ++h) {
    const int exponent = h >> 2, fraction = h & 3;
    values.push_back(exponent == 0 ? std::ldexp(fraction, -16) : std::ldexp(4 + fraction, exponent - 17));
  }
  return values;
}

TEST(DtypeTest, E5m2DecodesByDefinitionAndRoundTrips) {
  const std::vector<double> values = e5m2_values();
  EXPECT_EQ(values.back(), 57344.0);
  for (int h = 0; h < 0x7c; ++h) {
    const auto pattern = static_cast<uint8_t>(h), negative = static_cast<uint8_t>(h | 0x80);
    EXPECT_EQ(e5m2_to_float(pattern), values[static_cast<std::size_t>(h)]) << h;
    EXPECT_EQ(e5m2_to_float(negative), -values[static_cast<std::size_t>(h)]) << h;
    EXPECT_EQ(std::signbit(e5m2_to_float(negative)), true) << h;
    EXPECT_EQ(float_to_e5m2(e5m2_to_float(pattern)), pattern);
    EXPECT_EQ(float_to_e5m2(e5m2_to_float(negative)), negative);
  }
  EXPECT_EQ(e5m2_to_float(0x7c), INFINITY);
  EXPECT_EQ(e5m2_to_float(0xfc), -INFINITY);
  for (const int sign : {0, 0x80}) {
    for (const int nan : {0x7d, 0x7e, 0x7f})
      EXPECT_TRUE(std::isnan(e5m2_to_float(static_cast<uint8_t>(sign | nan)))) << nan;
  }
}

/// The pattern nearest to |x|, by search in the list of all values. A tie goes to the even pattern.
uint8_t nearest_e5m2(const std::vector<double>& values, float x) {
  const double a = std::fabs(static_cast<double>(x));
  const auto above = std::lower_bound(values.begin(), values.end(), a);
  auto h = static_cast<std::size_t>(above - values.begin());
  if (above == values.end()) {
    h = values.size() - 1;
  } else if (h > 0) {
    const double down = a - values[h - 1], up = values[h] - a;
    if (down < up || (down == up && h % 2 == 1)) --h;
  }
  return static_cast<uint8_t>(h | (std::signbit(x) ? 0x80u : 0u));
}

TEST(DtypeTest, E5m2RoundsToNearestEvenAndSaturates) {
  // Every exponent and sign, the upper 12 bits of the fraction, and the ends of the lower 11: a rounding
  // depends on no more.
  const std::vector<double> values = e5m2_values();
  for (uint32_t upper = 0; upper < 1u << 21; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7ffu}) {
      const float x = bits_float(upper << 11 | lower);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(e5m2_to_float(float_to_e5m2(x)))) << std::hex << float_bits(x);
      } else {
        ASSERT_EQ(int{float_to_e5m2(x)}, int{nearest_e5m2(values, x)}) << std::hexfloat << x;
      }
    }
  }
  for (const float x : {57345.0f, 61440.0f, 65536.0f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e5m2(x), 0x7b);
    EXPECT_EQ(float_to_e5m2(-x), 0xfb);
  }
}

constexpr float kE2m1Values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

TEST(DtypeTest, E2m1DecodesAndRoundTripsAllCodes) {
  for (int code = 0; code < 16; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    const float x = e2m1_to_float(bits);
    EXPECT_EQ(std::fabs(x), kE2m1Values[code & 7]) << code;
    EXPECT_EQ(std::signbit(x), code >= 8) << code;
    EXPECT_EQ(int{float_to_e2m1(x)}, code);
    EXPECT_EQ(e2m1_to_float(static_cast<uint8_t>(bits | 0xf0)), x)
        << "the upper half of the byte is not read";
  }
}

TEST(DtypeTest, E2m1RoundsToNearestEvenAndSaturates) {
  // Halves of a step, and what lies around them.
  constexpr std::pair<float, int> kTies[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                             {2.5f, 4},  {3.5f, 6},  {5.0f, 6}};
  for (int i = 0; i < 7; ++i) {
    const auto [tie, code] = kTies[i];
    EXPECT_EQ(int{float_to_e2m1(tie)}, code) << tie;
    EXPECT_EQ(int{float_to_e2m1(-tie)}, code | 8) << tie;
    EXPECT_EQ(int{float_to_e2m1(std::nextafter(tie, 0.0f))}, i) << tie;
    EXPECT_EQ(int{float_to_e2m1(std::nextafter(tie, 9.0f))}, i + 1) << tie;
  }
  for (const float x : {6.0f, 6.5f, 7.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(int{float_to_e2m1(x)}, 7) << x;
    EXPECT_EQ(int{float_to_e2m1(-x)}, 15) << x;
  }
  EXPECT_EQ(int{float_to_e2m1(1e-40f)}, 0);
  EXPECT_EQ(int{float_to_e2m1(-1e-40f)}, 8);
  EXPECT_EQ(int{float_to_e2m1(std::numeric_limits<float>::quiet_NaN())} & 7, 7) << "there is no NaN";
  // Every exponent and sign, and the upper 12 bits of the fraction, by search in the list of all values.
  for (uint32_t upper = 0; upper < 1u << 21; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7ffu}) {
      const float x = bits_float(upper << 11 | lower), a = std::fabs(x);
      if (std::isnan(x)) continue;
      int nearest = 0;
      for (int i = 1; i < 8; ++i) {
        const float down = std::fabs(a - kE2m1Values[nearest]), up = std::fabs(a - kE2m1Values[i]);
        if (up < down || (up == down && i % 2 == 0)) nearest = i;
      }
      if (a > 6) nearest = 7;
      ASSERT_EQ(int{float_to_e2m1(x)}, nearest | (std::signbit(x) ? 8 : 0)) << std::hexfloat << x;
    }
  }
}

TEST(DtypeTest, TwoNumbersOfE2m1ShareAByteTheFirstInItsLowerHalf) {
  uint8_t bytes[3] = {0xff, 0xff, 0xff};
  const float numbers[] = {1.5f, -6.0f, 0.5f, 2.0f};
  for (int i = 0; i < 4; ++i) store_float(DType::kE2m1x2, bytes, i, numbers[i]);
  EXPECT_EQ(bytes[0], 0xf3);
  EXPECT_EQ(bytes[1], 0x41);
  EXPECT_EQ(bytes[2], 0xff);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_float(DType::kE2m1x2, bytes, i), numbers[i]);
  EXPECT_EQ(dtype_size(DType::kE2m1x2), 1u);
  EXPECT_EQ(numbers_per_element(DType::kE2m1x2), 2);
  EXPECT_EQ(numbers_per_element(DType::kE4m3), 1);
}

TEST(DtypeTest, LargestNumbersAreThoseOfTheFormats) {
  EXPECT_EQ(largest_number(DType::kE2m1x2), kE2m1Values[7]);
  EXPECT_EQ(largest_number(DType::kE4m3), e4m3_values().back());
  EXPECT_EQ(largest_number(DType::kE5m2), e5m2_values().back());
  EXPECT_EQ(largest_number(DType::kInt8), 127.0f);
}

TEST(DtypeTest, SizesAndRoundoff) {
  EXPECT_EQ(dtype_size(DType::kFp32), 4u);
  EXPECT_EQ(dtype_size(DType::kFp16), 2u);
  EXPECT_EQ(dtype_size(DType::kBf16), 2u);
  EXPECT_EQ(dtype_size(DType::kE4m3), 1u);
  EXPECT_EQ(dtype_size(DType::kE5m2), 1u);
  EXPECT_EQ(dtype_size(DType::kInt8), 1u);
  // u is half the distance from 1 to the next larger number.
  EXPECT_EQ(unit_roundoff(DType::kBf16), (decode(kBf16Format, 0x3f81) - 1) / 2);
  EXPECT_EQ(unit_roundoff(DType::kFp16), (decode(kFp16Format, 0x3c01) - 1) / 2);
  EXPECT_EQ(unit_roundoff(DType::kE4m3), (e4m3_to_float(0x39) - 1) / 2);
  EXPECT_EQ(unit_roundoff(DType::kE5m2), (e5m2_to_float(0x3d) - 1) / 2);
  EXPECT_EQ(unit_roundoff(DType::kFp32), std::numeric_limits<float>::epsilon() / 2);
}

TEST(DtypeTest, LoadStoreAndRoundAgree) {
  for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kE5m2}) {
    std::vector<uint32_t> memory(4, 0);
    const float x = 1.0f / 3.0f;
    store_float(t, memory.data(), 1, x);
    EXPECT_EQ(load_float(t, memory.data(), 1), round_to(t, x)) << dtype_name(t);
    EXPECT_EQ(load_float(t, memory.data(), 0), 0.0f) << dtype_name(t);
    EXPECT_EQ(load_float(t, memory.data(), 2), 0.0f) << dtype_name(t);
    EXPECT_NEAR(round_to(t, x), x, unit_roundoff(t) * 0.5) << dtype_name(t);
  }
}

TEST(Int8, RoundsToNearestEvenAndSaturates) {
  const std::pair<float, int> cases[] = {
      {0.0f, 0},         {0.5f, 0},       {1.5f, 2},       {2.5f, 2},        {-0.5f, 0},
      {-1.5f, -2},       {-2.5f, -2},     {126.5f, 126},   {126.6f, 127},    {127.0f, 127},
      {127.6f, 127},     {1e30f, 127},    {-127.5f, -128}, {-128.0f, -128},  {-129.0f, -128},
      {-INFINITY, -128}, {INFINITY, 127}, {NAN, 0},        {0.49999997f, 0}, {-126.50001f, -127}};
  for (const auto& [x, want] : cases) EXPECT_EQ(int{float_to_int8(x)}, want) << x;
  for (int i = -128; i <= 127; ++i) {
    EXPECT_EQ(int{float_to_int8(static_cast<float>(i))}, i);
    int8_t stored = 0;
    store_float(DType::kInt8, &stored, 0, static_cast<float>(i));
    EXPECT_EQ(load_float(DType::kInt8, &stored, 0), static_cast<float>(i));
  }
}

}  // namespace
}  // namespace attnbench
