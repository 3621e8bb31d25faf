// V with another width than K, and V that is a view of K, compared with plain double loops.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::expect_right;
using testing::Problem;
using testing::Seq;

/// Few and many rows, empty ones, and a split context.
const std::vector<Seq> kMixedDims = {{1, 1}, {0, 5}, {5, 0}, {3, 7}, {17, 33}, {40, 25}, {2, 129}, {1, 2100}};

struct Dims {
  int qk, v;
};

TEST(CpuHeadDimV, WiderAndNarrower) {
  for (const Dims d : {Dims{192, 128}, {64, 512}, {1, 9}, {9, 1}, {40, 33}, {576, 512}, {512, 64}}) {
    for (const DType t : {DType::kBf16, DType::kFp32}) {
      SCOPED_TRACE(::testing::Message() << d.qk << "/" << d.v << " " << dtype_name(t));
      Problem p{.seqs = kMixedDims, .heads_q = 3, .heads_kv = 1, .dim = d.qk, .dim_v = d.v, .dtype = t};
      p.dtype_out = t;
      p.causal = true;
      expect_right(p);
    }
  }
}

TEST(CpuHeadDimV, EverySourceOfKeys) {
  for (const int block_size : {0, 16}) {
    for (const bool hnd : {false, true}) {
      for (const bool view : {false, true}) {
        Problem p{.seqs = kMixedDims, .heads_q = 6, .heads_kv = 2, .dim = 40, .dim_v = 24};
        p.v_is_k = view;
        p.block_size = block_size;
        p.hnd = hnd && block_size > 0;
        p.gaps = hnd && block_size == 0;
        SCOPED_TRACE(::testing::Message()
                     << "block_size " << block_size << " hnd " << hnd << " view " << view);
        expect_right(p);
        p.cache = Cache::kIndexed;
        p.block_size = 0;
        p.hnd = p.gaps = false;
        expect_right(p);
      }
    }
  }
}

TEST(CpuHeadDimV, LatentDecode) {
  for (const uint64_t quantised : {uint64_t{0}, uint64_t{kE4m3Kv}}) {
    Problem p{.seqs = {{1, 700}, {3, 40}, {2, 2}}, .heads_q = 16, .heads_kv = 1, .dim = 576, .dim_v = 512};
    p.dtype = DType::kBf16;
    p.v_is_k = true;
    p.quantised = quantised;
    p.block_size = 64;
    p.causal = true;
    expect_right(p);
  }
}

TEST(CpuHeadDimV, RefusesWhatContradictsItself) {
  LaunchContext context{};
  KernelMessage message{};
  const auto refusal = [&](auto&& change) {
    testing::Layout layout({.seqs = {{2, 3}}, .dim = 40, .dim_v = 24});
    change(layout.params().attention);
    EXPECT_EQ(cpu::kAttention.supports(&layout.params(), &context, &message), KernelStatus::kBadArgument);
    return std::string(message.text);
  };
  EXPECT_EQ(refusal([](AttentionParams& p) { p.features &= ~uint64_t{kHeadDimV}; }),
            "cpu: head_dim_v equal to head_dim 40 required without feature head_dim_v, given 24");
  EXPECT_EQ(refusal([](AttentionParams& p) { p.head_dim_v = 40; }),
            "cpu: head_dim_v equal to head_dim 40 required not with feature head_dim_v, given 40");
  EXPECT_EQ(refusal([](AttentionParams& p) { p.head_dim_v = 513; }),
            "cpu: head_dim_v 1..512 required, given 513");
  EXPECT_EQ(
      refusal([](AttentionParams& p) { p.features |= kVIsK; }),
      "cpu: V with K's strides and type, not int8, and head_dim_v up to 40 required of a view of K, given "
      "fp32 and 24");
}

}  // namespace
}  // namespace attnbench
