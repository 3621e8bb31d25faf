// K and V in e4m3 compared with plain double loops. Descales differ by sequence and head, and between K and
// V.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::expect_right;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::run;
using testing::Seq;
using testing::Slopes;

/// Few and many rows, empty ones, and lengths around the steps of 8 and 16.
const std::vector<Seq> kMixedQuantised = {{1, 1},  {0, 5},   {5, 0},    {3, 7},    {7, 3},  {17, 33},
                                          {1, 70}, {40, 25}, {23, 164}, {110, 90}, {2, 129}};

/// Split contexts with few and many packed rows, and one that is not split.
const std::vector<Seq> kLongQuantised = {{1, 4100}, {12, 2500}, {2, 60}};

Problem e4m3(std::vector<Seq> seqs, int heads_q, int heads_kv, int dim, DType t = DType::kFp32) {
  Problem p{.seqs = std::move(seqs), .heads_q = heads_q, .heads_kv = heads_kv, .dim = dim, .dtype = t};
  p.quantised = kE4m3Kv;
  return p;
}

TEST(CpuE4m3Kv, HeadDimsAndTypes) {
  for (const int dim : {1, 7, 8, 9, 31, 32, 33, 72, 128, 255, 256}) {
    for (const DType t : testing::kDTypes) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << " " << dtype_name(t));
      Problem p = e4m3(kMixedQuantised, 3, 1, dim, t);
      p.dtype_out = t;
      p.causal = true;
      expect_right(p);
    }
  }
}

TEST(CpuE4m3Kv, PagesLayoutsAndHeadRatios) {
  for (const int block_size : {0, 1, 16, 64}) {
    for (const bool hnd : {false, true}) {
      for (const int ratio : {1, 3, 8}) {
        SCOPED_TRACE(::testing::Message()
                     << "block_size " << block_size << " hnd " << hnd << " ratio " << ratio);
        Problem p = e4m3(kMixedQuantised, 3 * ratio, 3, 24, DType::kBf16);
        p.block_size = block_size;
        p.hnd = hnd && block_size > 0;
        p.gaps = hnd && block_size == 0;
        expect_right(p);
      }
    }
  }
}

TEST(CpuE4m3Kv, ContiguousCaches) {
  for (const Cache cache : {Cache::kRows, Cache::kIndexed}) {
    for (const DType t : testing::kDTypes) {
      SCOPED_TRACE(::testing::Message() << "indexed " << (cache == Cache::kIndexed) << " " << dtype_name(t));
      Problem p = e4m3(kMixedQuantised, 6, 2, 40, t);
      p.cache = cache;
      p.causal = true;
      expect_right(p);
      p.seqs = kLongQuantised;
      expect_right(p);
    }
  }
}

TEST(CpuE4m3Kv, EveryNumberOfFewRows) {
  for (int rows = 1; rows <= 18; ++rows) {
    SCOPED_TRACE(rows);
    expect_right(e4m3({{1, 77}, {1, 3}}, 2 * rows, 2, 40, DType::kFp16));
  }
}

TEST(CpuE4m3Kv, SplitContexts) {
  for (const DType t : testing::kDTypes) {
    for (const int block_size : {0, 16}) {
      SCOPED_TRACE(::testing::Message() << dtype_name(t) << " block_size " << block_size);
      Problem p = e4m3(kLongQuantised, 6, 3, 16, t);
      p.block_size = block_size;
      expect_right(p);
    }
  }
}

TEST(CpuE4m3Kv, ScalesOfEitherSignAndZero) {
  for (const float factor : {1.0f, -1.0f, 0.0f, 1e-30f}) {
    for (const float scale : {0.3f, -0.3f, 1e-18f}) {
      for (const float softcap : {0.0f, 1.5f}) {
        for (const Slopes slopes : {Slopes::kNone, Slopes::kPerHead}) {
          SCOPED_TRACE(::testing::Message() << "factor " << factor << " scale " << scale << " softcap "
                                            << softcap << " alibi " << (slopes != Slopes::kNone));
          Problem p = e4m3({{2, 150}, {40, 170}}, 4, 2, 32);
          p.k_descale_factor = factor;
          p.scale = scale;
          p.softcap = softcap;
          p.alibi = slopes;
          p.causal = true;
          expect_right(p);
        }
      }
    }
  }
}

TEST(CpuE4m3Kv, AllTermsOfTheScore) {
  for (const Cache cache : {Cache::kNone, Cache::kIndexed}) {
    for (const int window_left : {-1, 20, 3000}) {
      SCOPED_TRACE(::testing::Message()
                   << "contiguous " << (cache != Cache::kNone) << " window " << window_left);
      Problem p = e4m3(kMixedQuantised, 6, 2, 8, DType::kFp16);
      p.seqs.insert(p.seqs.end(), kLongQuantised.begin(), kLongQuantised.end());
      p.cache = cache;
      p.softcap = 3.0f;
      p.alibi = Slopes::kPerSequence;
      p.slope_factor = 0.1f;
      p.sinks = true;
      p.window_left = window_left;
      expect_right(p);
    }
  }
}

TEST(CpuE4m3Kv, LayoutsAndThreadsDoNotMatter) {
  Problem p = e4m3({{1, 5000}, {100, 100}, {40, 2500}, {3, 77}, {1, 1}}, 6, 2, 40, DType::kBf16);
  p.causal = true;
  const Result packed = run(p, 1);
  EXPECT_TRUE(packed == run(p, 5));
  p.block_size = 16;
  EXPECT_TRUE(packed == run(p));
  p.hnd = true;
  EXPECT_TRUE(packed == run(p, 3));
  p.block_size = 0;
  p.hnd = false;
  p.cache = Cache::kIndexed;
  EXPECT_TRUE(packed == run(p));
}

TEST(CpuE4m3Kv, AloneAndInABatchAgree) {
  const Problem batch = e4m3({{1, 2100}, {20, 33}, {3, 77}}, 6, 2, 40, DType::kBf16);
  const Result together = run(batch);
  std::size_t begin = 0;
  for (std::size_t b = 0; b < batch.seqs.size(); ++b) {
    Problem alone = batch;
    alone.seqs = {{batch.seqs[b].q, batch.seqs[b].k, static_cast<int>(b)}};
    const Result result = run(alone, 5);
    EXPECT_EQ(0, std::memcmp(result.out.data(), together.out.data() + begin, result.out.size() * 4)) << b;
    begin += result.out.size();
  }
}

TEST(CpuE4m3Kv, NanShows) {
  // NaN in a visible key, of K and of V and of either sign, and in a descale.
  for (const Seq seq : {Seq{1, 100}, Seq{30, 100}, Seq{1, 2100}}) {
    for (const bool in_k : {true, false}) {
      for (const int nan : {0x7f, 0xff}) {
        Layout layout(e4m3({seq}, 1, 1, 8));
        const AttentionParams& a = layout.params().attention;
        static_cast<uint8_t*>(const_cast<void*>(in_k ? a.k : a.v))[(2 + 50) * a.k_stride_token + 3] =
            static_cast<uint8_t>(nan);
        EXPECT_TRUE(std::isnan(layout.run().out[3])) << " q " << seq.q << " in_k " << in_k;
      }
      Layout layout(e4m3({seq}, 1, 1, 8));
      const AttentionParams& a = layout.params().attention;
      const_cast<float*>(in_k ? a.k_descale : a.v_descale)[0] = std::nanf("");
      EXPECT_TRUE(std::isnan(layout.run().out[3])) << " q " << seq.q << " in_k " << in_k;
    }
  }
}

}  // namespace
}  // namespace attnbench
