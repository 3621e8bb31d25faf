#include <gtest/gtest.h>

#include <cmath>

#include "harness/verify/error_model.h"

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

TEST(ErrorModel, SmallWeightsInFp16LoseDigits) {
  // One key carries the row and its v is 0 in this channel; eighty more with v of 256 weigh next to nothing.
  const RowMoments row{0, 1.0, 1.0, 0, 0, 81};
  const ErrorModel fp16({DType::kFp16, DType::kFp32, 0x1p-22}, DType::kFp16, 64);
  const ErrorModel bf16({DType::kBf16, DType::kFp32, 0x1p-22}, DType::kFp16, 64);
  const double vv = 80.0 * 65536;
  EXPECT_NEAR(fp16.sigma(row, 1e-4, 1e-9, 1e-9, vv), 0x1p-24 * std::sqrt(vv / 12), 1e-6);
  EXPECT_LT(bf16.sigma(row, 1e-4, 1e-9, 1e-9, vv), 1e-6);
}

TEST(ErrorModel, RowLimitGrowsWhereItCannotAverage) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  const RowMoments spread{0, 1e-3, 1e-3, 0, 0, 1000};
  EXPECT_NEAR(ErrorModel(n, DType::kBf16, 128).row_limit(spread, 0), 2.0, 1e-9);
  EXPECT_NEAR(ErrorModel(n, DType::kBf16, 1).row_limit(spread, 0), 46.9, 0.2)
      << "one channel: the square of a normal quantile";
  const RowMoments single{0, 1.0, 1.0, 0, 0, 1};
  const Numerics bf16_p{DType::kBf16, DType::kFp32, 0x1p-22};
  EXPECT_NEAR(ErrorModel(bf16_p, DType::kBf16, 128).row_limit(single, 0), 6.0, 1e-9);
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 128).row_limit(single, 1), 46.9, 0.2)
      << "one logit's error in all channels";
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 128).row_limit(spread, 1), 2.0, 1e-9) << "many keys average again";
}

TEST(ErrorModel, SoftcapAddsTheErrorOfItsTanh) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  const RowMoments row{0.3, 1.0, 1.0, 0.1, 0.1, 1};
  EXPECT_NEAR(ErrorModel(n, DType::kFp32, 8, 30).sigma_lse(row), 30 * 0x1p-22, 2e-7);
  EXPECT_LT(ErrorModel(n, DType::kFp32, 8).sigma_lse(row), 4e-7);
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
