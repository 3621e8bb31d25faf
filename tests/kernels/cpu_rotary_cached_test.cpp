// Keys that turn when they are read (kRotaryCached): as if all keys and queries had been turned, in double, before
// a launch without rotary embedding.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/addressing.h"
#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::Seq;
using testing::Slopes;

constexpr int kTableRows = 2600;

struct CachedTurn {
  int dim;
  int interleaved;
  RotaryQ q_position;
  std::vector<float> cos, sin;

  CachedTurn(int d, int pairs, RotaryQ q) : dim(d), interleaved(pairs), q_position(q) {
    for (int n = 0; n < kTableRows; ++n) {
      for (int i = 0; i < dim / 2; ++i) {
        const double angle = n * std::pow(100.0, -2.0 * i / dim);
        cos.push_back(static_cast<float>(std::cos(angle)));
        sin.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }

  RotaryParams params() const { return {cos.data(), sin.data(), dim, interleaved, kTableRows, q_position}; }

  /// Turns a row in memory to `position` and rounds it to `t`.
  void turn(DType t, void* base, int64_t at, int position) const {
    for (int i = 0; i < dim / 2; ++i) {
      const int64_t first = at + (interleaved ? 2 * i : i),
                    second = at + (interleaved ? 2 * i + 1 : i + dim / 2);
      const double a = load_float(t, base, first), b = load_float(t, base, second);
      const auto row = static_cast<std::size_t>(position * (dim / 2) + i);
      store_float(t, base, first, static_cast<float>(a * cos[row] - b * sin[row]));
      store_float(t, base, second, static_cast<float>(a * sin[row] + b * cos[row]));
    }
  }
};

AttentionParams& cached_params(Layout& layout) { return layout.params().attention; }

/// The result of a launch whose K and Q were turned in memory.
Result turned_before(const Problem& problem, const CachedTurn& turn) {
  Layout layout(problem);
  const AttentionParams& p = cached_params(layout);
  for (int b = 0; b < p.batch; ++b) {
    const SeqRange seq = seq_range(p, b);
    for (int j = 0; j < seq.k_len; ++j) {
      for (int h = 0; h < p.num_heads_kv; ++h)
        turn.turn(p.dtype_k, const_cast<void*>(p.k), k_row_offset(p, b, j) + h * p.k_stride_head, j);
    }
    for (int i = 0; i < seq.q_len; ++i) {
      const int position = turn.q_position == RotaryQ::kDiagonal           ? i + seq.k_len - seq.q_len
                           : turn.q_position == RotaryQ::kFromCacheSeqlens ? seq.k_len + i
                                                                           : seq.k_len;
      for (int h = 0; h < p.num_heads_q; ++h)
        turn.turn(p.dtype_q, const_cast<void*>(p.q), q_offset(p, seq.q_begin + i, h), position);
    }
  }
  return layout.run(2);
}

Result turned_when_read(const Problem& problem, const CachedTurn& turn, int threads = 2) {
  Layout layout(problem);
  AttentionParams& p = cached_params(layout);
  p.features |= kRotary | kRotaryCached;
  if (turn.q_position != RotaryQ::kDiagonal) p.features |= kRotaryQ;
  p.rotary = turn.params();
  return layout.run(threads);
}

void expect_same(const Problem& problem, const CachedTurn& turn) {
  const Result before = turned_before(problem, turn), read = turned_when_read(problem, turn);
  ASSERT_EQ(before.out.size(), read.out.size());
  // Rounding boundaries of turned elements: either side is right.
  const double room = 1e-5 + 2 * unit_roundoff(problem.dtype);
  for (std::size_t i = 0; i < read.out.size(); ++i) ASSERT_NEAR(read.out[i], before.out[i], room) << i;
  for (std::size_t i = 0; i < read.lse.size(); ++i) {
    if (std::isinf(before.lse[i])) {
      ASSERT_EQ(read.lse[i], before.lse[i]) << i;
    } else {
      ASSERT_NEAR(read.lse[i], before.lse[i], room) << i;
    }
  }
  ASSERT_EQ(before.probs.size(), read.probs.size());
  for (std::size_t i = 0; i < read.probs.size(); ++i) ASSERT_NEAR(read.probs[i], before.probs[i], room) << i;
}

/// Few and many rows, no queries, no keys, lengths around the steps, and a context that is split.
const std::vector<Seq> kLengthsCached = {{1, 1},  {0, 5},    {3, 7},    {17, 33},
                                         {1, 70}, {23, 164}, {90, 110}, {2, 2500}};

TEST(CpuRotaryCached, KeysTurnWhereTheyLie) {
  for (const int block_size : {0, 1, 16}) {
    for (const int interleaved : {0, 1}) {
      for (const DType t : testing::kDTypes) {
        for (const bool causal : {false, true}) {
          SCOPED_TRACE(::testing::Message() << "block_size " << block_size << " interleaved " << interleaved
                                            << ' ' << dtype_name(t) << " causal " << causal);
          Problem p{.seqs = kLengthsCached, .heads_q = 4, .heads_kv = 2, .dim = 24, .dtype = t};
          p.block_size = block_size;
          p.hnd = causal && block_size > 0;
          p.causal = causal;
          expect_same(p, CachedTurn(interleaved ? 24 : 10, interleaved, RotaryQ::kDiagonal));
        }
      }
    }
  }
}

TEST(CpuRotaryCached, ContiguousCachesWindowsProbabilitiesAndPositionsOfQueries) {
  for (const RotaryQ q : {RotaryQ::kDiagonal, RotaryQ::kFromCacheSeqlens, RotaryQ::kAtCacheSeqlens}) {
    for (const bool probs : {false, true}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(q) << " probs " << probs);
      Problem p{.seqs = {{1, 9}, {6, 40}, {30, 150}}, .heads_q = 6, .heads_kv = 3, .dim = 33};
      p.cache = Cache::kIndexed;
      p.window_left = 20;
      p.softcap = 3.0f;
      p.alibi = Slopes::kPerHead;
      p.sinks = true;
      p.probs = probs;
      expect_same(p, CachedTurn(32, 0, q));
    }
  }
}

TEST(CpuRotaryCached, MoreQueriesThanKeysHavePositionsByRotaryQ) {
  Problem p{.seqs = {{5, 2}, {3, 0}, {40, 9}}, .heads_q = 2, .heads_kv = 1, .dim = 16};
  expect_same(p, CachedTurn(16, 1, RotaryQ::kFromCacheSeqlens));
  expect_same(p, CachedTurn(16, 1, RotaryQ::kAtCacheSeqlens));
}

TEST(CpuRotaryCached, ThreadsAndLayoutsDoNotMatter) {
  Problem p{.seqs = kLengthsCached, .heads_q = 4, .heads_kv = 2, .dim = 24, .dtype = DType::kBf16};
  const CachedTurn turn(24, 0, RotaryQ::kDiagonal);
  const Result packed = turned_when_read(p, turn, 1);
  EXPECT_TRUE(packed == turned_when_read(p, turn, 5));
  p.block_size = 16;
  EXPECT_TRUE(packed == turned_when_read(p, turn));
}

TEST(CpuRotaryCached, RefusesWhatItCannotTurn) {
  const CachedTurn turn(16, 0, RotaryQ::kDiagonal);
  const auto refusal = [&](const Problem& problem, auto change) {
    Layout layout(problem);
    OpParams op = layout.params();
    op.attention.features |= kRotary | kRotaryCached;
    op.attention.rotary = turn.params();
    std::vector<float> out(256), lse(16);
    op.attention.out = out.data();
    op.attention.lse = lse.data();
    change(op.attention);
    LaunchContext context{};
    context.num_threads = 1;
    KernelMessage message{};
    if (cpu::kAttention.supports(&op, &context, &message) == KernelStatus::kOk) {
      EXPECT_EQ(cpu::kAttention.launch(&op, &context, &message), KernelStatus::kBadArgument);
    }
    return std::string(message.text);
  };
  using P = AttentionParams&;
  const Problem plain{.seqs = {{3, 7}}, .heads_q = 2, .heads_kv = 1, .dim = 16};
  const char* alone =
      "cpu: rotary, without append and with V that is no view of K, required for rotary_cached";
  EXPECT_EQ(refusal(plain, [](P p) { p.features &= ~uint64_t{kRotary}; }), alone);
  EXPECT_EQ(refusal(plain, [](P p) { p.features |= kAppend; }), alone);
  EXPECT_EQ(refusal(plain, [](P p) { p.rotary.dim = 18; }),
            "cpu: an even rotary dim from 2 to head_dim 16 required, given 18");
  EXPECT_EQ(refusal(plain, [](P p) { p.rotary.cos = nullptr; }),
            "cpu: cos and sin required for rotary, given null");
  EXPECT_EQ(refusal(plain, [](P p) { p.rotary.positions = 6; }),
            "cpu: sequence 0: queries and keys at positions 0..5 of the rotary tables required, given 4..6");
  Problem quantised = plain;
  quantised.quantised = kE4m3Kv;
  EXPECT_EQ(refusal(quantised, [](P) {}),
            "cpu: q, K and V in bf16, fp16 or fp32 required for rotary_cached, given fp32, e4m3 and e4m3");
}

}  // namespace
}  // namespace attnbench
