// K and V in e5m2 compared with plain double loops. Descales are as in e4m3, whose test has more problems.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::expect_right;
using testing::Layout;
using testing::Problem;
using testing::Seq;
using testing::Slopes;

/// Few and many rows, empty ones, lengths around the steps of 8 and 16, and contexts that are split.
const std::vector<Seq> kMixedE5m2 = {{1, 1},  {0, 5},   {5, 0},    {3, 7},    {7, 3},    {17, 33},
                                     {1, 70}, {40, 25}, {23, 164}, {110, 90}, {1, 4100}, {12, 2500}};

Problem e5m2(std::vector<Seq> seqs, int heads_q, int heads_kv, int dim, DType t = DType::kFp32) {
  Problem p{.seqs = std::move(seqs), .heads_q = heads_q, .heads_kv = heads_kv, .dim = dim, .dtype = t};
  p.quantised = kE5m2Kv;
  return p;
}

TEST(CpuE5m2Kv, HeadDimsAndTypes) {
  for (const int dim : {1, 7, 9, 32, 33, 128, 256}) {
    for (const DType t : testing::kDTypes) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << " " << dtype_name(t));
      Problem p = e5m2(kMixedE5m2, 3, 1, dim, t);
      p.dtype_out = t;
      p.causal = true;
      expect_right(p);
    }
  }
}

TEST(CpuE5m2Kv, PagesContiguousCachesAndAllTermsOfTheScore) {
  for (const int block_size : {0, 1, 16}) {
    for (const bool hnd : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "block_size " << block_size << " hnd " << hnd);
      Problem p = e5m2(kMixedE5m2, 9, 3, 24, DType::kBf16);
      p.block_size = block_size;
      p.hnd = hnd && block_size > 0;
      p.cache = block_size == 0 && hnd ? Cache::kIndexed : Cache::kNone;
      p.softcap = 3.0f;
      p.alibi = Slopes::kPerSequence;
      p.slope_factor = 0.1f;
      p.sinks = true;
      p.window_left = 3000;
      expect_right(p);
    }
  }
}

TEST(CpuE5m2Kv, NanAndInfinityShow) {
  for (const Seq seq : {Seq{1, 100}, Seq{30, 100}, Seq{1, 2100}}) {
    for (const bool in_k : {true, false}) {
      for (const int bits : {0x7d, 0x7f, 0xff, 0x7c, 0xfc}) {
        Layout layout(e5m2({seq}, 1, 1, 8));
        const AttentionParams& a = layout.params().attention;
        static_cast<uint8_t*>(const_cast<void*>(in_k ? a.k : a.v))[(2 + 50) * a.k_stride_token + 3] =
            static_cast<uint8_t>(bits);
        const float o = layout.run().out[3];
        const bool infinite = (bits & 0x7f) == 0x7c;
        if (infinite && in_k) continue;  // a score of -inf is a key that is not seen
        EXPECT_TRUE(infinite ? std::isinf(o) && std::signbit(o) == (bits > 0x7f) : std::isnan(o))
            << " q " << seq.q << " in_k " << in_k << " bits " << bits;
      }
    }
  }
}

TEST(CpuE5m2Kv, TypesAreOneOfTheirBits) {
  Layout layout(e5m2({{1, 5}}, 1, 1, 8));
  const LaunchContext context{};
  KernelMessage message{};
  OpParams op = layout.params();
  ASSERT_EQ(cpu::kAttention.supports(&op, &context, &message), KernelStatus::kOk) << message.text;
  for (const uint64_t other : {kE4m3Kv, kInt8K}) {
    op.attention.features |= other;
    EXPECT_EQ(cpu::kAttention.supports(&op, &context, &message), KernelStatus::kBadArgument);
    EXPECT_STREQ(message.text,
                 "cpu: one type of q and one of KV required, given bits of two of e4m3, e5m2, e2m1 and int8");
    op.attention.features ^= other;
  }
  op.attention.features |= kE4m3Q;
  op.attention.dtype_q = DType::kE4m3;
  EXPECT_EQ(cpu::kAttention.supports(&op, &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: KV in e4m3 required for q in e4m3, given other KV");
}

}  // namespace
}  // namespace attnbench
