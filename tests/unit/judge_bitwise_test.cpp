// Outputs of several launches: laid over each other, compared, merged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/judge/bitwise.h"
#include "harness/judge/verify.h"
#include "harness/ops/attention_backward/judge_parts.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

Case of(std::vector<SeqLen> seqs) {
  Case c;
  c.params.dtype = DType::kFp32;
  c.params.num_heads_q = c.params.num_heads_kv = 2;
  c.params.head_dim = 3;
  c.params.seqs = std::move(seqs);
  return c;
}

/// Every element of O and LSE is a different number, from `first` on.
HostOutputs counted(const Case& c, float first) {
  int64_t tokens = 0;
  for (const SeqLen& s : c.params.seqs) tokens += s.q;
  HostOutputs h;
  h.out.resize(static_cast<std::size_t>(tokens * 2 * 3) * sizeof(float));
  for (int64_t i = 0; i < tokens * 6; ++i)
    store_float(DType::kFp32, h.out.data(), i, first + static_cast<float>(i));
  for (int64_t i = 0; i < tokens * 2; ++i) h.lse.push_back(first - static_cast<float>(i));
  return h;
}

float o(const HostOutputs& h, int64_t i) { return load_float(DType::kFp32, h.out.data(), i); }

TEST(Bitwise, LaidOverTakesTheRowsOfItsSequences) {
  const Case base = of({{2, 5}, {1, 5}, {3, 5}});
  const Case other = of({{3, 5}, {2, 5}});
  const HostOutputs a = counted(base, 100);
  const HostOutputs b = counted(other, 500);
  const std::vector<int32_t> ids = {2, 0};
  const HostOutputs joined = laid_over(base, a, other, b, ids);
  EXPECT_EQ(o(joined, 0), o(b, 3 * 6)) << "sequence 0 is the other's second";
  EXPECT_EQ(o(joined, 2 * 6), o(a, 2 * 6)) << "sequence 1 stays";
  EXPECT_EQ(o(joined, 3 * 6 + 5), o(b, 5));
  EXPECT_EQ(joined.lse[6 + 3], b.lse[5 + 0]) << "head 1, first row of sequence 2";
  EXPECT_EQ(joined.lse[6 + 2], a.lse[6 + 2]);
}

TEST(Bitwise, TheFirstDifferenceIsNamed) {
  const Case c = of({{2, 5}, {3, 5}});
  const HostOutputs a = counted(c, 1);
  EXPECT_FALSE(first_difference(c, a, a));
  HostOutputs b = a;
  b.out[(3 * 6 + 4) * sizeof(float)] ^= 1;  // token 3: sequence 1, position 1; element 4: head 1, channel 1
  ASSERT_TRUE(first_difference(c, a, b));
  EXPECT_THAT(*first_difference(c, a, b), HasSubstr("O of seq 1 pos 1 head 1 channel 1"));
  b = a;
  b.lse[5 + 4] = -b.lse[5 + 4];
  EXPECT_THAT(first_difference(c, a, b).value_or(""), HasSubstr("LSE of seq 1 pos 2 head 1"));
  HostOutputs unwritten = a;
  std::fill(unwritten.lse.begin(), unwritten.lse.end(), std::bit_cast<float>(~uint32_t{0}));
  EXPECT_THAT(first_difference(c, a, unwritten).value_or(""),
              HasSubstr("head 0: not written, in the first launch "));
  std::fill(unwritten.out.begin(), unwritten.out.end(), static_cast<unsigned char>(0xff));
  EXPECT_THAT(first_difference(c, a, unwritten).value_or(""),
              HasSubstr("channel 0: NaN (not written, or poison that was read), in the first launch "));
  HostOutputs nan = a;
  nan.lse[0] = NAN;
  EXPECT_FALSE(first_difference(c, nan, nan)) << "bits, not values";
}

TEST(Bitwise, GradientsAreScaledUpToTheirLastDigit) {
  Case c = of({{2, 2}});
  c.params.op = Op::kAttentionBackward;
  const auto gradients = [&](DType dtype, float value) {
    c.params.dtype = dtype;
    HostOutputs h;
    for (auto* g : {&h.dq, &h.dk, &h.dv}) {
      g->resize(12 * dtype_size(dtype));
      for (int64_t i = 0; i < 12; ++i) store_float(dtype, g->data(), i, value);
    }
    return h;
  };
  const auto not_doubled = [&](DType dtype, float one, float two) {
    const HostOutputs base = gradients(dtype, one), other = gradients(dtype, two);
    return ops::attention_backward::first_not_scaled(c, base, other, 2).has_value();
  };
  EXPECT_FALSE(not_doubled(DType::kFp32, 1.5f, 3.0f));
  EXPECT_FALSE(not_doubled(DType::kFp32, 1.5f, 3.0f + 0x1p-22f)) << "a unit in the last place";
  EXPECT_TRUE(not_doubled(DType::kFp32, 1.5f, 3.0f + 0x1p-19f));
  EXPECT_FALSE(not_doubled(DType::kBf16, 1.5f, 3.0f + 0x1p-6f)) << "a unit in the last place";
  EXPECT_TRUE(not_doubled(DType::kBf16, 1.5f, 3.0f + 0x1p-4f));
  EXPECT_TRUE(not_doubled(DType::kFp32, 1.5f, std::nanf("")));
  const HostOutputs none = gradients(DType::kFp32, 0), some = gradients(DType::kFp32, 0x1p-140f);
  EXPECT_FALSE(ops::attention_backward::first_not_scaled(c, none, none, 0));
  EXPECT_TRUE(ops::attention_backward::first_not_scaled(c, none, some, 0)) << "zeros are exact";
}

TEST(Bitwise, StatesMergeByTheirLse) {
  const Case c = of({{2, 5}});
  HostOutputs a = counted(c, 0);
  HostOutputs b = counted(c, 0);
  for (int i = 0; i < 12; ++i) {
    store_float(DType::kFp32, a.out.data(), i, 1.0f);
    store_float(DType::kFp32, b.out.data(), i, 3.0f);
  }
  a.lse = {0.0f, -INFINITY, -INFINITY, NAN};
  b.lse = {std::log(3.0f), 2.0f, -INFINITY, 1.0f};
  const HostOutputs m = merged(c, a, b);  // LSE is (head, token), O (token, head, channel)
  EXPECT_FLOAT_EQ(o(m, 0), 2.5f) << "weights 1 and 3";
  EXPECT_FLOAT_EQ(m.lse[0], std::log(4.0f));
  EXPECT_EQ(o(m, 6), 3.0f) << "an empty state has no weight";
  EXPECT_EQ(m.lse[1], 2.0f);
  EXPECT_EQ(o(m, 3), 0.0f) << "two empty states";
  EXPECT_EQ(m.lse[2], -INFINITY);
  EXPECT_TRUE(std::isnan(m.lse[3]) && std::isnan(o(m, 9)));
  EXPECT_GT(m.extra_variance[0], 0);
}

TEST(StoredReference, JudgesAsTheOneThatIsNotStored) {
  const Case c = of({{2, 5}, {3, 40}});
  const HostOutputs wrong = counted(c, 1);
  const Numerics numerics{DType::kFp32, DType::kFp32, 0x1p-22};
  const StoredReference stored(c, CheckMode::kFull, 1);
  const Verdict a = stored.judge(wrong, numerics);
  const Verdict b = verify_attention(c, wrong, numerics, CheckMode::kFull, 1);
  EXPECT_FALSE(a.pass);
  EXPECT_EQ(a.failed_by, b.failed_by);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.max_z, b.max_z);
  EXPECT_EQ(a.rows, 10);
}

}  // namespace
}  // namespace attnbench
