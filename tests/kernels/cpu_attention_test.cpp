// The cpu attention kernel compared with plain double loops, over shapes, layouts, masks and types.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::expect_right;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::Seq;

/// Short and empty sequences, more queries than keys, and lengths around the steps of 8 and 16.
const std::vector<Seq> kMixed = {{1, 1},   {0, 5},  {5, 0}, {3, 7},   {7, 3},
                                 {17, 33}, {1, 70}, {0, 0}, {23, 64}, {2, 129}};

TEST(CpuAttention, HeadDimsAndTypes) {
  for (const int dim : {1, 2, 5, 63, 64, 72, 128, 255, 256}) {
    for (const DType t : testing::kDTypes) {
      for (const int block_size : {0, 16}) {
        SCOPED_TRACE(::testing::Message()
                     << "dim " << dim << " " << dtype_name(t) << " block_size " << block_size);
        Problem p{.seqs = kMixed, .heads_q = 3, .heads_kv = 1, .dim = dim, .dtype = t, .dtype_out = t};
        p.block_size = block_size;
        p.causal = true;
        expect_right(p);
      }
    }
  }
}

TEST(CpuAttention, PagesLayoutsAndHeadRatios) {
  for (const int block_size : {1, 16, 64, 256}) {
    for (const bool hnd : {false, true}) {
      for (const int ratio : {1, 3, 7, 8}) {
        SCOPED_TRACE(::testing::Message()
                     << "block_size " << block_size << " hnd " << hnd << " ratio " << ratio);
        Problem p{.seqs = kMixed, .heads_q = 2 * ratio, .heads_kv = 2, .dim = 24, .dtype = DType::kBf16};
        p.block_size = block_size;
        p.hnd = hnd;
        expect_right(p);
      }
    }
  }
}

TEST(CpuAttention, SlotsWithFewerQueriesThanRows) {
  for (const int block_size : {0, 16}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "block_size " << block_size << " causal " << causal);
      Problem p{.seqs = {{5, 40}, {0, 9}, {30, 70}}, .heads_q = 3, .heads_kv = 1, .dim = 24};
      p.block_size = block_size;
      p.causal = causal;
      Problem slots = p;
      const std::vector<int32_t> used = {5, 0, 30};
      slots.seqs = {{7, 40}, {2, 9}, {31, 70}};
      Layout layout(slots);
      layout.params().attention.features |= kSequsedQ;
      layout.params().attention.seqused_q = used.data();
      layout.params().attention.max_seqlen_q = 30;
      const Result want = testing::run(p), got = layout.run();
      const std::size_t row = 3 * 24;
      int from = 0, to = 0;
      for (std::size_t b = 0; b < used.size(); from += used[b], to += slots.seqs[b].q, ++b) {
        for (int i = 0; i < slots.seqs[b].q; ++i) {
          for (std::size_t c = 0; c < row; ++c) {
            const float x = got.out[(to + i) * row + c];
            EXPECT_TRUE(i < used[b] ? x == want.out[(from + i) * row + c] : std::isnan(x))
                << "row " << to + i;
          }
        }
      }
    }
  }
}

TEST(CpuAttention, EveryNumberOfFewRows) {
  for (int rows = 1; rows <= 18; ++rows) {
    SCOPED_TRACE(rows);
    expect_right(
        {.seqs = {{1, 77}, {1, 3}}, .heads_q = rows, .heads_kv = 1, .dim = 40, .dtype = DType::kFp16});
    expect_right({.seqs = {{rows, 77}, {rows, 3}}, .heads_q = 1, .heads_kv = 1, .dim = 40, .causal = true});
  }
}

TEST(CpuAttention, LengthsAtTheEdgesOfTiles) {
  for (const int q : {1, 16, 17, 95, 96, 97, 191, 193}) {
    for (const int k : {15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257}) {
      for (const bool causal : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "q " << q << " k " << k << " causal " << causal);
        expect_right({.seqs = {{q, k}}, .heads_q = 1, .heads_kv = 1, .dim = 8, .causal = causal});
      }
    }
  }
}

TEST(CpuAttention, Masks) {
  constexpr int kWidest = std::numeric_limits<int32_t>::max();
  for (const bool causal : {false, true}) {
    for (const int left : {-1, 0, 1, 15, 100, kWidest}) {
      for (const int right : {-1, 0, 2, 40, kWidest}) {
        SCOPED_TRACE(::testing::Message() << "causal " << causal << " window " << left << "," << right);
        Problem p{.seqs = {{3, 200}, {140, 150}, {150, 40}, {33, 300}, {1, 130}},
                  .heads_q = 3,
                  .heads_kv = 1,
                  .dim = 8};
        p.causal = causal;
        p.window_left = left;
        p.window_right = right;
        expect_right(p);
      }
    }
  }
}

TEST(CpuAttention, ScalesAndSoftcap) {
  for (const float softcap : {0.0f, 0.5f, 30.0f}) {
    for (const float magnitude : {1.0f, 20.0f}) {
      for (const float scale : {0.0f, -0.3f, 1.5f}) {
        SCOPED_TRACE(::testing::Message()
                     << "softcap " << softcap << " magnitude " << magnitude << " scale " << scale);
        Problem p{.seqs = {{2, 150}, {40, 170}}, .heads_q = 2, .heads_kv = 1, .dim = 32, .softcap = softcap};
        p.magnitude = magnitude;
        p.scale = scale;
        p.causal = true;
        expect_right(p);
      }
    }
  }
  Problem flat{.seqs = {{2, 150}, {40, 170}}, .dim = 16, .zero_scale = true};
  flat.causal = true;
  expect_right(flat);
}

TEST(CpuAttention, OutputTypeMayDiffer) {
  for (const DType in : testing::kDTypes) {
    for (const DType out : testing::kDTypes) {
      expect_right({.seqs = {{2, 20}, {20, 20}}, .dim = 19, .dtype = in, .dtype_out = out});
    }
  }
}

TEST(CpuAttention, SeqlensNeedNotStartAtZero) {
  Problem p{.seqs = kMixed, .heads_q = 4, .heads_kv = 2, .dim = 16, .causal = true, .q_begin = 5};
  expect_right(p);
  const Result shifted = testing::run(p);
  p.q_begin = 0;
  EXPECT_TRUE(shifted == testing::run(p));
}

TEST(CpuAttention, GapsBetweenPackedSequences) {
  Problem p{.seqs = kMixed, .heads_q = 4, .heads_kv = 2, .dim = 16, .gaps = true, .causal = true};
  expect_right(p);
}

TEST(CpuAttention, LongContextsAreSplit) {
  for (const int q : {1, 3, 40}) {
    for (const int k : {2048, 2049, 4100, 9000}) {
      SCOPED_TRACE(::testing::Message() << "q " << q << " k " << k);
      Problem p{.seqs = {{q, k}, {1, 10}},
                .heads_q = 2,
                .heads_kv = 1,
                .dim = 16,
                .dtype = DType::kBf16,
                .block_size = 16};
      p.causal = true;
      expect_right(p);
      p.window_left = 3000;
      expect_right(p);
    }
  }
}

TEST(CpuAttention, EmptyBatches) {
  expect_right({.seqs = {}});
  expect_right({.seqs = {{0, 0}, {0, 7}}});
  expect_right({.seqs = {{0, 0}, {0, 7}}, .block_size = 16});
}

TEST(CpuAttention, NanInVisibleKeysShows) {
  // A kernel that dropped NaN would hide reads of poison. Here one visible key is NaN, in K and then in V.
  for (const DType t : testing::kDTypes) {
    for (const Seq seq : {Seq{1, 100}, Seq{30, 100}}) {
      for (const bool in_k : {true, false}) {
        Problem p{.seqs = {seq}, .heads_q = 1, .heads_kv = 1, .dim = 8, .dtype = t};
        Layout layout(p);
        const AttentionParams& a = layout.params().attention;
        store_float(t, const_cast<void*>(in_k ? a.k : a.v), (2 + 50) * a.k_stride_token + 3, std::nanf(""));
        EXPECT_TRUE(std::isnan(layout.run().out[3])) << dtype_name(t) << " q " << seq.q << " in_k " << in_k;
      }
    }
  }
}

TEST(CpuAttention, RefusesWhatItDoesNotDo) {
  LaunchContext context{};
  KernelMessage message{};
  const auto status = [&](auto&& change) {
    Layout layout({.seqs = {{2, 3}}, .heads_q = 4, .heads_kv = 2});
    change(layout.params().attention);
    return cpu::kAttention.supports(&layout.params(), &context, &message);
  };
  EXPECT_EQ(status([](AttentionParams&) {}), KernelStatus::kOk);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kOneRow; }), KernelStatus::kUnsupported);
  EXPECT_STREQ(message.text, "cpu: one_row is not supported");
  EXPECT_EQ(status([](AttentionParams& p) { p.num_heads_q = 3; }), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: num_heads_q a positive multiple of num_heads_kv 2 required, given 3");
  EXPECT_EQ(status([](AttentionParams& p) { p.head_dim = 577; }), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: head_dim 1..576 required, given 577");
  EXPECT_EQ(status([](AttentionParams& p) { p.dtype_v = DType::kInt8; }), KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.dtype_k = p.dtype_v = DType::kE4m3; }),
            KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kE4m3Kv; }), KernelStatus::kBadArgument);
  EXPECT_STREQ(
      message.text,
      "cpu: q, K and V in fp32, e4m3 and e4m3 required by the feature bits, given fp32, fp32 and fp32");
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kE4m3Q; }), KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.features &= ~uint64_t{kPackedKv}; }),
            KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.softcap = std::nanf(""); }), KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.batch = -1; }), KernelStatus::kBadArgument);
  EXPECT_EQ(status([](AttentionParams& p) { p.features |= kTopLeft | kCausal; }), KernelStatus::kOk);
  for (const uint64_t bits : {uint64_t{0}, kCausal | kAlibi, kCausal | kAttentionChunk})
    EXPECT_EQ(status([&](AttentionParams& p) { p.features |= kTopLeft | bits; }), KernelStatus::kBadArgument)
        << bits;

  // Shapes are checked before buffers exist; pointers are checked at the launch.
  Layout layout({.seqs = {{2, 3}}});
  EXPECT_EQ(cpu::kAttention.supports(&layout.params(), &context, &message), KernelStatus::kOk);
  EXPECT_EQ(cpu::kAttention.launch(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: q, out and lse required, given null");
  layout.params().attention.features |= kAlibi;
  EXPECT_EQ(cpu::kAttention.launch(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: alibi_slopes required for alibi, given null");
  layout.params().attention.features ^= kAlibi | kE4m3Kv;
  EXPECT_EQ(cpu::kAttention.launch(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: k_descale required for quantised K, given null");
  layout.params().attention.features ^= kE4m3Kv | kSinks;
  EXPECT_EQ(cpu::kAttention.launch(&layout.params(), &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: sinks required for sinks, given null");
}

}  // namespace
}  // namespace attnbench
