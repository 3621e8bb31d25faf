// --require: what it takes, and which declared types are enough.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/facts/declared_types.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Required required(const std::vector<std::string>& items) {
  Required r;
  EXPECT_THAT(read_required(items, r), IsEmpty());
  return r;
}

TEST(VerifyDeclaredTypes, WiderTypesAreEnough) {
  const DType from_wide[] = {DType::kFp32, DType::kFp16, DType::kE4m3};
  for (int wanted = 0; wanted < 3; ++wanted) {
    for (int given = 0; given < 3; ++given) {
      const Numerics declared{from_wide[given], from_wide[given], 0};
      for (const std::string key : {"p=", "acc="}) {
        const auto less = lacks(required({key + dtype_name(from_wide[wanted])}), declared);
        EXPECT_EQ(less.has_value(), given > wanted) << key << wanted << given;
      }
    }
  }
  EXPECT_FALSE(lacks(required({"p=bf16"}), {DType::kFp16, DType::kFp32, 0}));
  EXPECT_FALSE(lacks(required({"p=fp16"}), {DType::kBf16, DType::kFp32, 0}));
  EXPECT_FALSE(lacks({}, {DType::kE4m3, DType::kE4m3, 0}));
}

TEST(VerifyDeclaredTypes, TheSentenceSaysWhatIsDeclaredAndWhatIsAskedFor) {
  EXPECT_EQ(
      lacks(required({"acc=fp32", "p=bf16"}), {DType::kE4m3, DType::kFp16, 0}),
      "the kernel declares sums in fp16, and --require asks for acc=fp32; P in e4m3, and --require asks "
      "for p=bf16");
}

TEST(VerifyDeclaredTypes, NumbersAreLimits) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-11, 0x1p-13, 4};
  EXPECT_FALSE(lacks(required({"exp_rel_err=2^-11", "mma_roundoff=1e-3", "p_scale=4"}), n));
  EXPECT_EQ(
      lacks(required({"exp_rel_err=2^-22", "p_scale=16"}), n),
      "the kernel declares exp_rel_err 2^-11, and --require asks for 2^-22 at most; p_scale 4, and --require "
      "asks for 16 at least");
  Required r;
  for (const std::string wrong : {"", "-1", "x", "2^", "nan"})
    EXPECT_THAT(read_required({"exp_rel_err=" + wrong}, r), HasSubstr("is not a number from 0 on")) << wrong;
}

TEST(VerifyDeclaredTypes, UnknownKeysAndTypesAreRefused) {
  Required r;
  EXPECT_THAT(read_required({"acc=fp32", "q=fp32"}, r), HasSubstr("'q=fp32' is not known: give acc=TYPE"));
  EXPECT_THAT(read_required({"p=int8"}, r), HasSubstr("'int8' is not a type of p: give fp32, fp16, bf16 or"));
  EXPECT_THAT(read_required({"p"}, r), HasSubstr("'' is not a type"));
}

}  // namespace
}  // namespace attnbench
