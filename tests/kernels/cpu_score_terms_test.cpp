// ALiBi, sinks and contiguous caches of the cpu kernel compared with plain double loops, separately and
// together.
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

/// Few and many rows; more queries than keys, which leaves rows empty; empty sequences.
const std::vector<Seq> kMixedTerms = {{1, 1},  {0, 5},   {5, 0},    {3, 7},    {7, 3},  {17, 33},
                                      {1, 70}, {40, 25}, {23, 164}, {110, 90}, {2, 129}};

/// Split contexts with few and many packed rows, and one that is not split.
const std::vector<Seq> kLongTerms = {{1, 4100}, {12, 2500}, {2, 60}};

TEST(CpuScoreTerms, Alibi) {
  for (const Slopes slopes : {Slopes::kPerHead, Slopes::kPerSequence}) {
    for (const bool sqrt : {false, true}) {
      for (const bool causal : {false, true}) {
        for (const DType t : testing::kDTypes) {
          SCOPED_TRACE(::testing::Message() << "per sequence " << (slopes == Slopes::kPerSequence) << " sqrt "
                                            << sqrt << " causal " << causal << " " << dtype_name(t));
          Problem p{
              .seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 24, .dtype = t, .causal = causal};
          p.alibi = slopes;
          p.alibi_sqrt = sqrt;
          expect_right(p);
        }
      }
    }
  }
}

TEST(CpuScoreTerms, SecondQueries) {
  for (const int dim_v : {24, 40, 130}) {
    for (const bool causal : {false, true}) {
      for (const DType t : testing::kDTypes) {
        SCOPED_TRACE(::testing::Message()
                     << "dim_v " << dim_v << " causal " << causal << " " << dtype_name(t));
        Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 24, .dtype = t, .causal = causal};
        p.dim_v = dim_v;
        p.qv = p.probs = true;
        expect_right(p);
      }
    }
  }
  Problem p{.seqs = kLongTerms, .heads_q = 4, .heads_kv = 1, .dim = 16, .dtype = DType::kBf16};
  p.dim_v = 64;
  p.qv = true;
  p.block_size = 16;
  p.softcap = 3.0f;
  p.window_left = 90;
  expect_right(p);
}

TEST(CpuScoreTerms, AlibiOverScalesAndTiles) {
  // A negative scale and a scale of 0 take separate paths through the kernel.
  for (const float scale : {-0.3f, 1.5f, 0.0f}) {
    Problem p{.seqs = {{2, 150}, {40, 300}, {193, 257}}, .heads_q = 3, .heads_kv = 1, .dim = 16};
    p.scale = scale;
    p.zero_scale = scale == 0.0f;
    p.alibi = Slopes::kPerHead;
    expect_right(p);
    p.causal = true;
    expect_right(p);
  }
}

TEST(CpuScoreTerms, AlibiIsAddedAfterSoftcap) {
  Problem p{.seqs = kMixedTerms, .heads_q = 3, .heads_kv = 3, .dim = 32, .softcap = 1.5f};
  p.magnitude = 10.0f;
  p.alibi = Slopes::kPerHead;
  p.slope_factor = 3.0f;
  expect_right(p);
}

TEST(CpuScoreTerms, SlopesOfZeroChangeNothing) {
  Problem p{.seqs = kMixedTerms, .heads_q = 4, .heads_kv = 2, .dim = 16, .causal = true};
  p.alibi = Slopes::kPerHead;
  p.slope_factor = 0.0f;
  expect_right(p);
}

/// Chunks of one key, of less than a tile, of several tiles and of more than all keys.
TEST(CpuScoreTerms, Chunks) {
  for (const int chunk : {1, 10, 64, 100, 5000}) {
    for (const bool causal : {false, true}) {
      for (const int window : {-1, 7}) {
        SCOPED_TRACE(::testing::Message()
                     << "chunk " << chunk << " causal " << causal << " window " << window);
        Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 24, .causal = causal};
        p.attention_chunk = chunk;
        p.window_left = window;
        expect_right(p);
        p.seqs = kLongTerms;
        p.block_size = 16;
        expect_right(p);
      }
    }
  }
}

TEST(CpuScoreTerms, LsesToBase2AndByToken) {
  for (const bool base2 : {false, true}) {
    for (const bool token_major : {false, true}) {
      for (const bool sinks : {false, true}) {
        SCOPED_TRACE(::testing::Message() << base2 << token_major << sinks);
        Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 24, .causal = true};
        p.lse_base2 = base2;
        p.lse_token_major = token_major;
        p.sinks = sinks;
        p.probs = true;
        p.q_begin = 3;
        expect_right(p);
        p.seqs = kLongTerms;
        p.probs = false;
        expect_right(p);
      }
    }
  }
}

TEST(CpuScoreTerms, Sinks) {
  for (const float shift : {0.0f, 8.0f, -8.0f}) {
    for (const bool causal : {false, true}) {
      for (const DType t : testing::kDTypes) {
        SCOPED_TRACE(::testing::Message() << "shift " << shift << " causal " << causal << dtype_name(t));
        Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 24, .dtype = t, .causal = causal};
        p.sinks = true;
        p.sink_shift = shift;
        expect_right(p);
      }
    }
  }
}

TEST(CpuScoreTerms, SinksThatOutweighEveryKeyOrNothing) {
  for (const float shift : {90.0f, 1000.0f, -90.0f, -1000.0f}) {
    SCOPED_TRACE(shift);
    Problem p{.seqs = kMixedTerms, .heads_q = 4, .heads_kv = 2, .dim = 16};
    p.sinks = true;
    p.sink_shift = shift;
    p.causal = true;
    expect_right(p);
  }
}

TEST(CpuScoreTerms, SinksOfMinusInfinityAreNone) {
  Problem p{.seqs = {{5, 3}, {1, 4100}, {40, 40}}, .heads_q = 4, .heads_kv = 1, .dim = 16, .causal = true};
  const Result none = run(p);
  p.sinks = true;
  p.sink_shift = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(none == run(p));
}

TEST(CpuScoreTerms, SplitContexts) {
  for (const bool sinks : {false, true}) {
    for (const Slopes slopes : {Slopes::kNone, Slopes::kPerSequence}) {
      SCOPED_TRACE(::testing::Message() << "sinks " << sinks << " alibi " << (slopes != Slopes::kNone));
      Problem p{.seqs = kLongTerms, .heads_q = 4, .heads_kv = 2, .dim = 16, .dtype = DType::kBf16};
      p.sinks = sinks;
      p.sink_shift = 7.0f;  // about the weight of all keys
      p.alibi = slopes;
      p.slope_factor = 0.01f;
      expect_right(p);
    }
  }
}

TEST(CpuScoreTerms, ContiguousCaches) {
  for (const Cache cache : {Cache::kRows, Cache::kIndexed}) {
    for (const DType t : testing::kDTypes) {
      SCOPED_TRACE(::testing::Message() << "indexed " << (cache == Cache::kIndexed) << " " << dtype_name(t));
      Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 40, .dtype = t, .causal = true};
      p.cache = cache;
      expect_right(p);
      p.seqs = kLongTerms;
      expect_right(p);
    }
  }
  Problem none{.seqs = {}};
  none.cache = Cache::kIndexed;
  expect_right(none);
}

TEST(CpuScoreTerms, AllTogether) {
  for (const Cache cache : {Cache::kNone, Cache::kIndexed}) {
    for (const bool sqrt : {false, true}) {
      for (const int window_left : {-1, 20, 3000}) {
        for (const int window_right : {-1, 0, 9}) {
          SCOPED_TRACE(::testing::Message() << "contiguous " << (cache != Cache::kNone) << " sqrt " << sqrt
                                            << " window " << window_left << "," << window_right);
          Problem p{.seqs = kMixedTerms, .heads_q = 6, .heads_kv = 2, .dim = 8, .dtype = DType::kFp16};
          p.seqs.insert(p.seqs.end(), kLongTerms.begin(), kLongTerms.end());
          p.cache = cache;
          p.softcap = 3.0f;
          p.alibi = Slopes::kPerSequence;
          p.alibi_sqrt = sqrt;
          p.slope_factor = 0.1f;
          p.sinks = true;
          p.window_left = window_left;
          p.window_right = window_right;
          expect_right(p);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnbench
