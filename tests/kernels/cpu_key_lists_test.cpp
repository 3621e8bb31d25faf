// The cpu kernel with a list of keys for each query and KV head.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench::testing {
namespace {

const std::vector<Seq> kSeqs = {{5, 70}, {1, 130}, {9, 4}, {0, 8}, {2, 0}, {33, 40}};

Problem with_lists(int heads_q, int heads_kv, int dim) {
  Problem p{.seqs = kSeqs, .heads_q = heads_q, .heads_kv = heads_kv, .dim = dim};
  p.topk = 120;
  p.q_begin = 3;
  return p;
}

TEST(CpuKeyLists, PackedAndPagedWithGroupsOfHeads) {
  for (const int block : {0, 1, 16}) {
    for (const auto& [heads_q, heads_kv] : {std::pair{2, 2}, {6, 2}, {40, 1}}) {
      for (const DType t : kDTypes) {
        SCOPED_TRACE(::testing::Message()
                     << "block " << block << " heads " << heads_q << " " << dtype_name(t));
        Problem p = with_lists(heads_q, heads_kv, 40);
        p.block_size = block;
        p.dtype = t;
        expect_right(p);
        p.causal = true;
        p.window_left = 30;
        expect_right(p);
      }
    }
  }
}

TEST(CpuKeyLists, LatentRowsAndQuantisedOnes) {
  for (const uint64_t quantised : {uint64_t{0}, uint64_t{kE4m3Kv}, uint64_t{kE4m3Kv | kE4m3Q}}) {
    Problem p = with_lists(32, 1, 576);
    p.seqs = {{2, 300}, {1, 50}};
    p.topk = 260;
    p.dim_v = 512;
    p.v_is_k = true;
    p.block_size = 64;
    p.quantised = quantised;
    p.sinks = true;
    p.softcap = 5;
    expect_right(p);
    p.hnd = true;
    expect_right(p);
  }
}

/// Lists of more than a split, and lists that num_splits cuts into more parts than they have entries.
TEST(CpuKeyLists, Splits) {
  Problem p = with_lists(4, 2, 24);
  p.seqs = {{2, 9000}, {1, 20}};
  p.topk = 7000;
  p.sinks = true;
  expect_right(p);
  for (const int splits : {3, 300}) {
    Layout layout(p);
    AttentionParams& a = layout.params().attention;
    a.features |= kSplitKv;
    a.num_splits = splits;
    const Result got = layout.run(), whole = run(p);
    for (std::size_t i = 0; i < got.out.size(); ++i) EXPECT_NEAR(got.out[i], whole.out[i], 1e-5);
    for (std::size_t i = 0; i < got.lse.size(); ++i) EXPECT_NEAR(got.lse[i], whole.lse[i], 1e-4);
  }
}

TEST(CpuKeyLists, NeedNoBlockTable) {
  Problem p = with_lists(4, 2, 24);
  p.block_size = 16;
  const Result right = run(p);
  Layout layout(p);
  layout.params().attention.block_table = nullptr;
  layout.params().attention.block_table_stride = 0;
  EXPECT_TRUE(layout.run() == right);
}

TEST(CpuKeyLists, AreRefusedWithWhatGoesByPosition) {
  const auto status = [](auto change) {
    Problem p = with_lists(4, 2, 24);
    Layout layout(p);
    change(layout.params().attention);
    LaunchContext context{};
    KernelMessage message{};
    return cpu::kAttention.supports(&layout.params(), &context, &message);
  };
  EXPECT_EQ(status([](AttentionParams&) {}), KernelStatus::kOk);
  EXPECT_EQ(status([](AttentionParams& p) { p.topk = 0; }), KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.features &= ~uint64_t{kTopkIndices}; }),
            KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kAlibi; }), KernelStatus::kUnsupported);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kProbs; }), KernelStatus::kUnsupported);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kCustomMask; }), KernelStatus::kUnsupported);
  EXPECT_EQ(
      status([](AttentionParams& p) { p.features = (p.features & ~uint64_t{kPackedKv}) | kContiguousKv; }),
      KernelStatus::kBadArgument);
}

}  // namespace
}  // namespace attnbench::testing
