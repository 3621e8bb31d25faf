#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/judge/error_model.h"
#include "harness/values/values.h"

namespace attnbench {
namespace {

TEST(ErrorModel, RoundingOfTheOutputAlone) {
  const ErrorModel m({DType::kFp32, DType::kFp32, 0x1p-24}, DType::kBf16, 128);
  const double sigma = m.sigma({0, 1, 1, 0, 0, 1}, 2.0, 0.0, 0.0, 0.0);
  EXPECT_NEAR(sigma, 2.0 / 256 / std::sqrt(3.0), 1e-6);
}

TEST(ErrorModel, LowPrecisionPWidensIt) {
  const RowMoments row{0, 0.01, 0.02, 0, 0, 100};
  const ErrorModel narrow({DType::kFp32, DType::kFp32, 0x1p-22}, DType::kFp32, 128);
  const ErrorModel wide({DType::kBf16, DType::kFp32, 0x1p-22}, DType::kFp32, 128);
  EXPECT_GT(wide.sigma(row, 0.1, 0.01, 0.01, 1.0), 100 * narrow.sigma(row, 0.1, 0.01, 0.01, 1.0));
}

TEST(ErrorModel, ShortSumsOfTheMatrixUnit) {
  // A score of 10 that is a sum of 128 products of one sign, in sums of 14 bits.
  const RowMoments row{.lse = 10, .w2 = 1, .p_max = 1, .score_abs = 10, .dot_norm = 10, .keys = 1};
  const ErrorModel full({DType::kFp16, DType::kFp32, 0x1p-22}, DType::kBf16, 128);
  const ErrorModel scores({DType::kFp16, DType::kFp32, 0x1p-22, 0x1p-13}, DType::kBf16, 128);
  const double ds = 0x1p-13 * 10 * (1 + std::sqrt(4 + 128 / 9.0));
  EXPECT_NEAR(scores.sigma_lse(row), ds, 1e-3 * ds);
  EXPECT_LT(full.sigma_lse(row), 1e-3 * ds);
  // Only products with P in 8 bits are summed that short, and bias O.
  EXPECT_EQ(scores.mma_bias(), 0.0);
  const ErrorModel both({DType::kE4m3, DType::kFp32, 0x1p-22, 0x1p-13}, DType::kBf16, 128);
  EXPECT_EQ(both.mma_bias(), 0x1p-9);
}

TEST(ErrorModel, OperandsThatAreCutOffErrTogether) {
  const Numerics exact{DType::kFp32, DType::kFp32, 0};
  Numerics tf32 = exact;
  tf32.input_roundoff = 0x1p-10;
  const ErrorModel plain(exact, DType::kFp32, 64), cut(tf32, DType::kFp32, 64);
  RowMoments row;
  row.dot_norm = 8;
  row.keys = 1;
  EXPECT_NEAR(cut.sigma_lse(row), 8 * 0x1p-10, 1e-5) << "q.k is off by twice this at most";
  EXPECT_LT(plain.sigma_lse(row), 1e-5);
  row.dot_norm = 0;
  // Both operands lose up to 2^-10 of themselves, and so does their product twice that.
  EXPECT_GT(2 * cut.sigma(row, 1, 1, 0, 1), 0x1p-9);
  EXPECT_EQ(cut.mma_bias(), 0x1p-10);
  EXPECT_EQ(cut.p_roundoff(), 0x1p-10);
  EXPECT_EQ(plain.mma_bias(), 0);
}

TEST(ErrorModel, AScaleOfPMakesItsSpacingFiner) {
  const RowMoments row{0, 1.0, 1.0, 0, 0, 81};
  const ErrorModel one({DType::kE4m3, DType::kFp32, 0x1p-22}, DType::kBf16, 64);
  const ErrorModel sixteen({DType::kE4m3, DType::kFp32, 0x1p-22, 0x1p-13, 16}, DType::kBf16, 64);
  const double o = 1e-9, a2 = 1e-18, vv = 80.0;
  EXPECT_NEAR(one.sigma(row, o, a2, a2, vv) / sixteen.sigma(row, o, a2, a2, vv), 16.0, 0.1);
}

TEST(ErrorModel, SmallWeightsInFp16LoseDigits) {
  // One key dominates the row and its v is 0 in this channel. Eighty more with v of 256 have almost no
  // weight.
  const RowMoments row{0, 1.0, 1.0, 0, 0, 81};
  const ErrorModel fp16({DType::kFp16, DType::kFp32, 0x1p-22}, DType::kFp16, 64);
  const ErrorModel bf16({DType::kBf16, DType::kFp32, 0x1p-22}, DType::kFp16, 64);
  const double vv = 80.0 * 65536;
  EXPECT_NEAR(fp16.sigma(row, 1e-4, 1e-9, 1e-9, vv), 0x1p-24 * std::sqrt(vv / 12), 1e-6);
  EXPECT_LT(bf16.sigma(row, 1e-4, 1e-9, 1e-9, vv), 1e-6);
}

TEST(ErrorModel, WeightsThatNoFloatHoldsMayBeFlushed) {
  // One key dominates the row and its v is 0. Another with v of 256 has 2^-130 of its weight: O = 2^-122, or
  // 0.
  const RowMoments row{0, 1.0, 1.0, 0, 0, 2};
  const ErrorModel m({DType::kFp32, DType::kFp32, 0x1p-22}, DType::kBf16, 64);
  EXPECT_LT(0x1p-122 / m.sigma(row, 0x1p-122, 0x1p-244, 0x1p-244, 65536), kMaxZ);
  EXPECT_GT(0x1p-112 / m.sigma(row, 0x1p-112, 0x1p-224, 0x1p-224, 65536), kMaxZ);
  // A sink outweighs the only key, with v of 2, by 2^127.
  const RowMoments beside_sink{0, 1.0, 0x1p-127, 0, 0, 1};
  EXPECT_LT(0x1p-126 / m.sigma(beside_sink, 0x1p-126, 0x1p-252, 0, 4), kMaxZ);
  EXPECT_GT(0x1p-116 / m.sigma({0, 1.0, 0x1p-117, 0, 0, 1}, 0x1p-116, 0x1p-232, 0, 4), kMaxZ);
}

TEST(ErrorModel, SubnormalOutputsMayBeFlushedInBf16AndFp32ButNotInFp16) {
  const RowMoments row{0, 1.0, 1.0, 0, 0, 1};  // one key: O is its v
  const auto z_of_zero = [&](DType out, double v) {
    return v / ErrorModel({DType::kFp32, DType::kFp32, 0x1p-22}, out, 64).sigma(row, v, v * v, 0, v * v);
  };
  for (const DType out : {DType::kBf16, DType::kFp32}) {
    EXPECT_LT(z_of_zero(out, 0x1.fcp-127), 2) << dtype_name(out);
    EXPECT_GT(z_of_zero(out, 0x1p-120), kMaxZ) << dtype_name(out);
  }
  EXPECT_GT(z_of_zero(DType::kFp16, 0x1.ffp-15), kMaxZ);
}

TEST(ErrorModel, AFlushedWeightIsNoWrongRow) {
  // One key with v of 1 beside a sink 2^126.05 times as heavy: O = 2^-126.05 in all channels, or 0.
  const ErrorModel m({DType::kBf16, DType::kFp32, 0x1p-22}, DType::kBf16, 128);
  const double p = std::exp2(-126.05);
  const RowMoments row{.lse = 87, .w2 = 1, .p_max = p, .score_abs = 87, .dot_norm = 87, .keys = 1, .w4 = 1};
  const double z = p / m.sigma(row, p, p * p, p * p, 1.0);
  EXPECT_LT(z * z, m.row_limit(row, {}));
  const double seen = 16 * p;
  EXPECT_GT(seen / m.sigma({.w2 = 1, .p_max = seen, .keys = 1}, seen, seen * seen, 0, 1.0), kMaxZ);
}

TEST(ErrorModel, LogitsBeyondFloat32ShiftWeightsByTheirExponential) {
  // A score of -1.65e7, whose float32 sum is off by 3.5. The second key's weight of 5.5e-4 may be multiplied
  // by e^3.5.
  const ErrorModel m({DType::kFp32, DType::kFp32, 0x1p-22}, DType::kFp32, 84);
  RowMoments row{.lse = 0, .w2 = 1, .p_max = 1, .score_abs = 1.65e7, .dot_norm = 2e7, .keys = 2, .w4 = 1};
  const double p = 5.5e-4;
  EXPECT_LT(std::exp(3.5) * p / m.sigma(row, 0.0, p * p, p * p, 1.0), kMaxZ);
  // At a score of 1e5 the same weight is known to 3 %, and the tolerance is the linear one within 10 %.
  row.score_abs = row.dot_norm = 1e5;
  const double ds = (1 + std::sqrt(4 + 84 / 9.0)) * 1e5 * 0x1p-24;
  EXPECT_NEAR(m.sigma(row, 0.0, p * p, p * p, 1.0), ds * p, 0.1 * ds * p);
}

TEST(ErrorModel, ASumOfProductsOfOneSignRoundsInEachStep) {
  // Partial sum i of D is i / D of the score: summed one by one in float32, the error has the standard deviation
  // sqrt(D) / 3 * u * score at most. A kernel that scales q first meets it with exact powers of two in q and K.
  constexpr int kDim = 128;
  const RowMoments row{
      .lse = 1e5, .w2 = 0.1, .p_max = 0.2, .score_abs = 1e5, .dot_norm = 1e5, .keys = 50, .w4 = 0.1};
  const ErrorModel m({DType::kFp32, DType::kFp32, 0x1p-22}, DType::kFp32, kDim);
  const double serial = std::sqrt(kDim) / 3 * 0x1p-24 * row.score_abs;
  EXPECT_GT(m.sigma_lse(row), serial);
  EXPECT_LT(m.sigma_lse(row), 2.5 * serial);
}

/// The errors of a kernel that rounds P to e4m3 or int8 are about as large as sigma says.
TEST(ErrorModel, PInEightBits) {
  for (const DType type : {DType::kE4m3, DType::kInt8}) {
    const ErrorModel m({type, DType::kFp32, 0x1p-24}, DType::kFp32, 1);
    double sum_z2 = 0, worst = 0;
    constexpr int kRows = 400, kKeys = 64;
    for (uint32_t row = 0; row < kRows; ++row) {
      double e[kKeys], v[kKeys], sum = 0, top = 0;
      for (uint32_t j = 0; j < kKeys; ++j) {
        const Philox4 r = philox4x32(row, j, 0, 0, 1);
        e[j] = std::exp(static_cast<double>(bell(r.x[0])));
        v[j] = bell(r.x[1]);
        top = std::max(top, e[j]);
        sum += e[j];
      }
      double o = 0, got = 0, a2 = 0, vv = 0, p2 = 0;
      for (int j = 0; j < kKeys; ++j) {
        const double p = e[j] / sum;
        const double rounded = type == DType::kInt8
                                   ? std::nearbyint(127 * e[j] / top) / 127
                                   : static_cast<double>(round_to(type, static_cast<float>(e[j] / top)));
        o += p * v[j];
        got += rounded * top / sum * v[j];
        a2 += p * p * v[j] * v[j];
        vv += v[j] * v[j];
        p2 += p * p;
      }
      const double z = (got - o) / m.sigma({std::log(sum), p2, top / sum, 0, 0, kKeys}, o, a2, 0, vv);
      sum_z2 += z * z;
      worst = std::max(worst, std::abs(z));
    }
    EXPECT_LT(worst, kMaxZ) << dtype_name(type);
    EXPECT_GT(std::sqrt(sum_z2 / kRows), 0.3) << dtype_name(type) << ": not looser than needed";
    EXPECT_LT(std::sqrt(sum_z2 / kRows), 1.2) << dtype_name(type);
  }
}

TEST(ErrorModel, ProbabilitiesErrRelatively) {
  const ErrorModel m({DType::kFp32, DType::kFp32, 0x1p-22}, DType::kFp32, 64);
  const RowMoments row{2.0, 0.1, 0.3, 3.0, 10.0, 100};
  EXPECT_NEAR(m.sigma_p(row, 0.3) / m.sigma_p(row, 0.003), 100, 1e-6);
  EXPECT_GT(m.sigma_p(row, 0.3), 0.3 * m.sigma_lse(row));
  EXPECT_LT(m.sigma_p(row, 0.3), 0.3 * 1e-5);
  EXPECT_GT(m.sigma_p(row, 0.0), 0.0) << "what is flushed to 0 is no error";
}

TEST(ErrorModel, RowLimitGrowsWhereItCannotAverage) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  const RowMoments spread{0, 1e-3, 1e-3, 0, 0, 1000};
  EXPECT_NEAR(ErrorModel(n, DType::kBf16, 128).row_limit(spread, {}), 2.0, 1e-9);
  EXPECT_NEAR(ErrorModel(n, DType::kBf16, 1).row_limit(spread, {}), 46.9, 0.2)
      << "one channel: the square of a normal quantile";
  const RowMoments single{0, 1.0, 1.0, 0, 0, 1};
  const Numerics bf16_p{DType::kBf16, DType::kFp32, 0x1p-22};
  EXPECT_NEAR(ErrorModel(bf16_p, DType::kBf16, 128).row_limit(single, {}), 6.0, 1e-9);
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 128).row_limit(single, {.logits = 1}), 46.9, 0.2)
      << "one logit's error in all channels";
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 128).row_limit(spread, {.logits = 1}), 2.0, 1e-9)
      << "many keys average again";
}

TEST(ErrorModel, SoftcapAddsTheErrorOfItsTanh) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  const RowMoments row{0.3, 1.0, 1.0, 0.1, 0.1, 1};
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 8, 30).sigma_lse(row), 30 * 0x1p-22, 2e-7);
  EXPECT_LT(ErrorModel(n, DType::kFp32, 8).sigma_lse(row), 4e-7);
}

/// Found by fuzzing: the running maximum begins with the sink, so exp(score - sink) is flushed.
TEST(ErrorModel, WeightsFarBelowASinkMayBeFlushed) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  const double p = 0x1p-127, v = 1.5;
  const RowMoments row{0, 1.0, p, 0, 0, 1};
  const double sigma = ErrorModel(n, DType::kBf16, 8).sigma(row, p * v, p * p * v * v, 0, v * v);
  EXPECT_LT(p * v / sigma, kMaxZ);
  EXPECT_LT(sigma, 0x1p-125);
}

TEST(ErrorModel, UlpIsTheSpacingOfTheType) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  EXPECT_EQ(ErrorModel(n, DType::kBf16, 8).ulp(1.0), 1.0 / 128);
  EXPECT_EQ(ErrorModel(n, DType::kFp16, 8).ulp(-1.5), 1.0 / 1024);
  EXPECT_EQ(ErrorModel(n, DType::kFp32, 8).ulp(2.0), 0x1p-22);
  EXPECT_EQ(ErrorModel(n, DType::kFp16, 8).ulp(0.0), 0x1p-24);
}

}  // namespace
}  // namespace attnbench
