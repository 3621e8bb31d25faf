// Returned probabilities and dropout, compared with plain double loops.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::expect_right;
using testing::Problem;
using testing::Result;
using testing::run;
using testing::Seq;
using testing::Slopes;

/// Few and many rows, empty ones, and a split context.
const std::vector<Seq> kMixedTraining = {{1, 1},   {0, 5},   {5, 0},   {3, 7},
                                         {17, 33}, {40, 25}, {2, 129}, {1, 2100}};

Problem training(float p_dropout, bool probs, int dim = 24, DType t = DType::kFp32) {
  Problem p{.seqs = kMixedTraining, .heads_q = 6, .heads_kv = 2, .dim = dim, .dtype = t};
  p.p_dropout = p_dropout;
  p.probs = probs;
  p.causal = true;
  return p;
}

TEST(CpuTraining, SharesTypesAndWidths) {
  for (const float p_dropout : {0.0f, 0.1f, 0.5f, 0.97f}) {
    for (const DType t : {DType::kBf16, DType::kFp32}) {
      for (const int dim : {24, 130}) {
        SCOPED_TRACE(::testing::Message() << p_dropout << " " << dtype_name(t) << " dim " << dim);
        Problem p = training(p_dropout, true, dim, t);
        p.q_begin = 5;  // the mask uses row numbers of the packed tensor
        expect_right(p);
      }
    }
  }
}

TEST(CpuTraining, MasksAndTermsOfTheScore) {
  for (const int window_left : {-1, 20}) {
    for (const bool causal : {false, true}) {
      Problem p = training(0.3f, true);
      p.causal = causal;
      p.window_left = window_left;
      p.window_right = 5;
      p.softcap = 2.0f;
      p.alibi = Slopes::kPerSequence;
      p.slope_factor = 0.1f;
      p.sinks = true;
      p.dim_v = 40;
      SCOPED_TRACE(::testing::Message() << "window " << window_left << " causal " << causal);
      expect_right(p);
    }
  }
}

TEST(CpuTraining, QuantisedInputs) {
  for (const uint64_t quantised : {kE4m3Kv | uint64_t{kE4m3Q}, kInt8Q | kInt8K | uint64_t{kInt8V}}) {
    Problem p = training(0.3f, true);
    p.quantised = quantised;
    expect_right(p);
  }
}

TEST(CpuTraining, LayoutsAndThreadsDoNotMatter) {
  Problem p = training(0.3f, true);
  const Result packed = run(p, 1);
  EXPECT_TRUE(packed == run(p, 5));
  p.block_size = 16;
  EXPECT_TRUE(packed == run(p));
  p.block_size = 0;
  p.cache = Cache::kIndexed;
  EXPECT_TRUE(packed == run(p));
}

TEST(CpuTraining, DropoutLeavesLseAndProbabilities) {
  const Result with = run(training(0.3f, true)), without = run(training(0.0f, true));
  EXPECT_NE(with.out, without.out);
  EXPECT_EQ(with.lse, without.lse);
  EXPECT_EQ(with.probs, without.probs);
}

TEST(CpuTraining, RefusesSharesThatAreNone) {
  LaunchContext context{};
  KernelMessage message{};
  for (const float p_dropout : {0.0f, -0.1f, 1.0f, std::nanf("")}) {
    testing::Layout layout(training(0.3f, false));
    layout.params().attention.p_dropout = p_dropout;
    EXPECT_EQ(cpu::kAttention.supports(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  }
  testing::Layout layout(training(0.0f, false));
  layout.params().attention.p_dropout = 0.3f;
  EXPECT_EQ(cpu::kAttention.supports(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text,
               "cpu: p_dropout over 0 and under 1 with dropout, 0 without, required, given 0.3");
}

}  // namespace
}  // namespace attnbench
