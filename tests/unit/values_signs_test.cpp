// Signs that are changed in place, and digests that do not see them.
#include "harness/values/signs.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace attnbench {
namespace {

/// (tokens, heads, dim) of fp32 with a table of one row per two heads.
struct Floats {
  std::vector<float> data;
  std::vector<uint8_t> table = {1, 0, 1, 0, 1, 1};  // (2, 3)
  SignedTensor tensor() {
    return {.data = data.data(),
            .dtype = DType::kFp32,
            .elements = static_cast<int64_t>(data.size()),
            .dim = 3,
            .heads = 4,
            .group = 2,
            .table = table.data(),
            .table_dim = 3};
  }
};

Floats numbers(int tokens) {
  Floats f;
  for (int i = 0; i < tokens * 4 * 3; ++i) f.data.push_back(static_cast<float>(i) + 0.5f);
  return f;
}

TEST(ValuesSigns, TheTableSaysWhichChange) {
  Floats f = numbers(2);
  change_signs_host(f.tensor());
  for (std::size_t i = 0; i < f.data.size(); ++i) {
    const std::size_t head = i / 3 % 4, channel = i % 3;
    const bool changed = f.table[head / 2 * 3 + channel] != 0;
    EXPECT_EQ(f.data[i], (changed ? -1 : 1) * (static_cast<float>(i) + 0.5f)) << i;
  }
}

TEST(ValuesSigns, RowsOfAHeadLieTogetherInHnd) {
  Floats f = numbers(4);
  SignedTensor t = f.tensor();
  t.head_rows = 2;  // blocks of two tokens
  change_signs_host(t);
  for (int64_t token = 0; token < 4; ++token) {
    for (int32_t head = 0; head < 4; ++head) {
      const auto at = static_cast<std::size_t>(row_of(t, token, head) * 3);
      EXPECT_EQ(f.data[at] < 0, f.table[static_cast<std::size_t>(head / 2 * 3)] != 0) << token << " " << head;
    }
  }
}

TEST(ValuesSigns, ADigestDoesNotSeeTheChange) {
  Floats f = numbers(700);
  f.data[5] = 0.0f;  // in the changed channel of a head: becomes -0
  f.data[6] = std::numeric_limits<float>::quiet_NaN();
  SignedTensor plain = f.tensor();
  plain.table = nullptr;
  const uint64_t before = unsigned_digest_host(plain, 0);
  change_signs_host(f.tensor());
  EXPECT_EQ(unsigned_digest_host(f.tensor(), 0), before);
  EXPECT_EQ(unsigned_digest_host(f.tensor(), 1234567), before) << "where it begins does not matter";
  EXPECT_NE(unsigned_digest_host(plain, 0), before);
  f.data[100] += 1;
  EXPECT_NE(unsigned_digest_host(f.tensor(), 0), before);
}

TEST(ValuesSigns, WithoutATableItIsThePlainDigest) {
  Floats f = numbers(3);
  f.data.pop_back();  // the last word is not full
  SignedTensor plain = f.tensor();
  plain.table = nullptr;
  EXPECT_EQ(unsigned_digest_host(plain, 3),
            digest_host(f.data.data(), static_cast<int64_t>(f.data.size() * sizeof(float))));
}

TEST(ValuesSigns, WordsReadAtOnceGiveTheSameDigest) {
  std::vector<uint64_t> memory(48);  // (tokens, 2 heads, 16 channels), aligned to 8 bytes
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = digest_word(7, i);
  memory[3] = 0x8000000080008000u;  // -0 in several types
  memory[4] = ~uint64_t{0};
  alignas(8) uint8_t tables[33 + 7] = {};
  for (const DType dtype :
       {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kE5m2, DType::kInt8}) {
    uint64_t digests[2];
    for (const int shift : {0, 1}) {  // a table at an odd address is read byte by byte
      for (int i = 0; i < 32; ++i) tables[shift + i] = static_cast<uint8_t>(i % 5 == 0 || i % 7 == 3);
      const SignedTensor t{.data = memory.data(),
                           .dtype = dtype,
                           .elements = static_cast<int64_t>(memory.size() * 8 / dtype_size(dtype)),
                           .dim = 16,
                           .heads = 2,
                           .table = tables + shift,
                           .table_dim = 16};
      digests[shift] = unsigned_digest_host(t, 5);
    }
    EXPECT_EQ(digests[0], digests[1]) << dtype_name(dtype);
  }
}

TEST(ValuesSigns, EveryTypeChangesTwiceIntoItself) {
  for (const DType dtype :
       {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kE5m2, DType::kInt8}) {
    const uint32_t bits = dtype == DType::kFp32 ? 0x12345678u : dtype_size(dtype) == 2 ? 0x1234u : 0x12u;
    EXPECT_NE(negated(dtype, bits), bits);
    EXPECT_EQ(negated(dtype, negated(dtype, bits)), bits);
    EXPECT_TRUE(is_poison(dtype, poison_bits(dtype)));
    EXPECT_TRUE(is_poison(dtype, negated(dtype, poison_bits(dtype))));
    EXPECT_FALSE(is_poison(dtype, bits));
  }
  EXPECT_EQ(static_cast<int8_t>(negated(DType::kInt8, 5)), -5);
}

TEST(ValuesSigns, InfinityKeepsItsSignAndNanHasOne) {
  for (const auto& [dtype, infinity, nan] :
       {std::tuple{DType::kFp32, 0x7f800000u, 0x7f800001u}, std::tuple{DType::kBf16, 0x7f80u, 0x7f81u},
        std::tuple{DType::kFp16, 0x7c00u, 0x7c01u}, std::tuple{DType::kE5m2, 0x7cu, 0x7du}}) {
    EXPECT_EQ(without_sign(dtype, infinity, false), infinity) << dtype_name(dtype);
    EXPECT_EQ(without_sign(dtype, infinity, true), negated(dtype, infinity)) << dtype_name(dtype);
    EXPECT_EQ(without_sign(dtype, nan, false), without_sign(dtype, negated(dtype, nan), true))
        << dtype_name(dtype);
  }
}

TEST(ValuesSigns, LateSignsAreThoseOfAFewChannels) {
  Floats f = numbers(2);
  change_late_signs_host({f.tensor(), /*table_row=*/1, /*first=*/1, /*count=*/2});
  for (std::size_t i = 0; i < f.data.size(); ++i) {
    EXPECT_EQ(f.data[i] < 0, i / 3 % 4 >= 2 && i % 3 >= 1) << i;
  }
}

TEST(ValuesSigns, PoisonLiesWhereALaunchWrites) {
  Floats f = numbers(8);
  const std::vector<int64_t> tokens = {6, 2};  // a launch that writes two rows of a cache
  WatchedOutput some{.tensor = f.tensor(), .tokens = tokens.data(), .num_tokens = 2};
  poison_host(some);
  int poisoned = 0;
  for (std::size_t i = 0; i < f.data.size(); ++i) {
    const bool written = i / 12 == 6 || i / 12 == 2;
    EXPECT_EQ(f.data[i] != f.data[i], written) << i;
    poisoned += written ? 1 : 0;
  }
  EXPECT_EQ(poisoned, written_elements(some));
}

}  // namespace
}  // namespace attnbench
