// merge_states: a right merge passes, and each kind of wrong one is caught by its detector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "harness/judge/verify.h"
#include "harness/ops/merge_states/tensors_states.h"
#include "harness/values/values.h"

namespace attnbench {
namespace {

using ::testing::Contains;

constexpr Numerics kMergeNumerics{DType::kFp32, DType::kFp32, 0x1p-24};

Case merge_case() {
  Case c;
  c.params.op = Op::kMergeStates;
  c.params.dtype = DType::kFp32;
  c.params.num_heads_q = c.params.num_heads_kv = 3;
  c.params.head_dim = 16;
  c.params.states = 4;
  c.params.empty_states = 0.3;
  c.params.seqs = {{37, 37}, {0, 0}, {5, 5}};
  return c;
}

/// Possible errors of a merge.
struct Wrong {
  std::function<double(double lse, int state)> weight = [](double lse, int) { return std::exp(lse); };
  double lse_factor = 1;
  double o_factor = 1;
  bool uses_empty_states = false;
  int states = 4;
};

HostOutputs merged(const Case& c, const Wrong& wrong = {}) {
  const CaseParams& p = c.params;
  const int64_t rows = merge_rows(p);
  HostOutputs h;
  h.lse.resize(static_cast<std::size_t>(rows * p.num_heads_q));
  std::vector<float> out(h.lse.size() * static_cast<std::size_t>(p.head_dim));
  std::vector<float> values(static_cast<std::size_t>(p.head_dim));
  for (int64_t t = 0; t < rows; ++t) {
    for (int head = 0; head < p.num_heads_q; ++head) {
      const int64_t row = t * p.num_heads_q + head;
      double sum = 0;
      std::vector<double> o(values.size(), 0.0);
      for (int s = 0; s < wrong.states; ++s) {
        const double lse = static_cast<double>(partial_lse_of(c, s, t, head));
        const bool empty = std::isinf(lse);
        if (empty && !wrong.uses_empty_states) continue;
        const double w = empty ? 0.0 : wrong.weight(lse, s);
        sum += w;
        value_row({c.seed, p.data}, Tensor::kPartialO, static_cast<uint32_t>(s), static_cast<uint32_t>(row),
                  0, p.head_dim, values.data());
        for (std::size_t d = 0; d < o.size(); ++d) o[d] += w * (empty ? NAN : static_cast<double>(values[d]));
      }
      h.lse[static_cast<std::size_t>(head * rows + t)] = static_cast<float>(std::log(sum) * wrong.lse_factor);
      for (std::size_t d = 0; d < o.size(); ++d) {
        out[static_cast<std::size_t>(row) * o.size() + d] =
            static_cast<float>(sum == 0 ? o[d] : o[d] / sum * wrong.o_factor);
      }
    }
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(out.data());
  h.out.assign(bytes, bytes + out.size() * sizeof(float));
  return h;
}

Verdict judge(const Wrong& wrong) {
  const Case c = merge_case();
  return verify_merge(c, merged(c, wrong), kMergeNumerics, CheckMode::kFull);
}

TEST(VerifyMerge, TheRightMergePasses) {
  const Verdict v = judge({});
  EXPECT_TRUE(v.pass) << v.reason;
  EXPECT_EQ(v.rows, 42 * 3);
  EXPECT_GT(v.max_z, 0);  // fp32 rounds, so a nonzero error shows a comparison
}

TEST(VerifyMerge, KnownMistakesAreNamed) {
  const auto clue = [](const Wrong& wrong) { return judge(wrong).clues; };
  const auto looks_like = [](const char* text) {
    return Contains(::testing::StartsWith(std::string("looks like: ") + text + " (all 64"));
  };
  EXPECT_THAT(clue({.states = 3}), looks_like("the last state is left out"));
  EXPECT_THAT(clue({.weight = [](double lse, int s) { return s == 0 ? 0 : std::exp(lse); }}),
              looks_like("the first state is left out"));
  EXPECT_THAT(clue({.weight = [](double lse, int) { return std::exp2(lse); }}),
              looks_like("weights are powers of 2 of LSEs of base e"));
  EXPECT_THAT(clue({.weight = [](double, int) { return 1; }}), looks_like("states have equal weights"));
  EXPECT_THAT(clue({.o_factor = 1.5}), ::testing::IsEmpty());
  EXPECT_THAT(clue({}), ::testing::IsEmpty());
}

TEST(VerifyMerge, EachWrongMergeIsSeen) {
  const auto failed_by = [](const Wrong& wrong) { return judge(wrong).failed_by; };
  EXPECT_THAT(failed_by({.weight = [](double lse, int) { return std::exp2(lse); }}),
              Contains(detector::kMaxZ))
      << "log2 read as ln";
  EXPECT_THAT(failed_by({.lse_factor = 1.4426950408889634}), Contains(detector::kLse)) << "LSE in log2";
  EXPECT_THAT(failed_by({.uses_empty_states = true}), Contains(detector::kPoison)) << "0 * NaN";
  EXPECT_TRUE(std::isnan(judge({.uses_empty_states = true}).max_abs));
  EXPECT_THAT(failed_by({.states = 3}), Contains(detector::kMaxZ)) << "the last state skipped";
  EXPECT_THAT(failed_by({.weight = [](double, int) { return 1.0; }}), Contains(detector::kRowZ2)) << "a mean";
  EXPECT_THAT(failed_by({.o_factor = 1.0005}), Contains(detector::kBias)) << "a scale 0.05 % off";
}

TEST(VerifyMerge, RowsOfEmptyStatesAloneAreExact) {
  Case c = merge_case();
  c.params.empty_states = 1;
  HostOutputs h = merged(c);
  EXPECT_TRUE(verify_merge(c, h, kMergeNumerics, CheckMode::kFull).pass);
  h.lse[7] = INFINITY;
  EXPECT_THAT(verify_merge(c, h, kMergeNumerics, CheckMode::kFull).failed_by, Contains(detector::kEmptyRow));
  h = merged(c);
  h.out[4 * 100 + 3] = 0x3f;
  EXPECT_THAT(verify_merge(c, h, kMergeNumerics, CheckMode::kFull).failed_by, Contains(detector::kEmptyRow));
}

}  // namespace
}  // namespace attnbench
