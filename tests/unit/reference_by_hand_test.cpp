// Features beyond the plain product, in cases so small that the results are computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reference/merge.h"
#include "reference/reference.h"
#include "tests/unit/reference_naive.h"

namespace attnbench::reference {
namespace {

/// One sequence and head of width 1, q.k = dots[j], v = values[j], qv = 2.
class Given : public Inputs {
 public:
  Given(const std::vector<double>& dots, const std::vector<double>& values) : dots_(dots), values_(values) {}
  void load_q(int, int, int begin, int end, double* out) const override {
    std::fill_n(out, end - begin, 1.0);
  }
  void load_k(int, int, int begin, int end, double* out) const override {
    std::copy(dots_.begin() + begin, dots_.begin() + end, out);
  }
  void load_v(int, int, int begin, int end, double* out) const override {
    std::copy(values_.begin() + begin, values_.begin() + end, out);
  }
  void load_qv(int, int, int begin, int end, double* out) const override {
    std::fill_n(out, end - begin, 2.0);
  }

 private:
  std::vector<double> dots_, values_;
};

Problem single(int q_len, int k_len) {
  Problem p;
  p.head_dim = p.num_heads_q = p.num_heads_kv = 1;
  p.q_lens = {q_len};
  p.k_lens = {k_len};
  return p;
}

Result row_of(const Problem& p, const Given& inputs, int pos, int head = 0, int seq = 0) {
  return run(p, inputs, {{seq, pos, head}}, 1).begin()->second;
}

// 3 queries on 5 keys in chunks of 2: queries 0, 1 and 2 are at keys 2, 3 and 4, in chunks {2, 3}, {2, 3} and
// {4}. All weights are 1.
TEST(ReferenceByHand, AChunkCountsFromTheFirstKey) {
  const Given inputs({0, 0, 0, 0, 0}, {1, 2, 4, 8, 16});
  Problem p = single(3, 5);
  p.attention_chunk = 2;
  EXPECT_NEAR(row_of(p, inputs, 0).o[0], (4.0 + 8.0) / 2, 1e-14) << "the key behind the diagonal is seen";
  EXPECT_NEAR(row_of(p, inputs, 1).o[0], (4.0 + 8.0) / 2, 1e-14);
  EXPECT_NEAR(row_of(p, inputs, 2).o[0], 16.0, 1e-14);
  p.causal = true;
  EXPECT_NEAR(row_of(p, inputs, 0).o[0], 4.0, 1e-14);
  EXPECT_NEAR(row_of(p, inputs, 1).lse, std::log(2.0), 1e-15);
  p.window_left = 0;
  EXPECT_NEAR(row_of(p, inputs, 1).o[0], 8.0, 1e-14) << "a key must pass the window too";
  // More queries than keys: those before key 0 are in no chunk that has keys, with and without causal.
  Problem short_keys = single(3, 1);
  short_keys.attention_chunk = 4;
  EXPECT_EQ(row_of(short_keys, inputs, 1).lse, -kInf);
  EXPECT_NEAR(row_of(short_keys, inputs, 2).o[0], 1.0, 1e-14);
}

// 2 queries on 4 keys: query 0 is at key 2, so the distances are 2 1 0 1. With slope ln 2 the weights are 1/4
// 1/2 1 1/2, divided by 9/4.
TEST(ReferenceByHand, AlibiCountsFromTheBottomRightDiagonal) {
  const Given inputs({0, 0, 0, 0}, {9, 18, 36, 72});
  Problem p = single(2, 4);
  p.alibi_slopes = {std::log(2.0)};
  const Result first = row_of(p, inputs, 0);
  EXPECT_NEAR(first.o[0], (9.0 / 4 + 18.0 / 2 + 36.0 + 72.0 / 2) / (9.0 / 4), 1e-13);
  EXPECT_NEAR(first.lse, std::log(9.0 / 4), 1e-15);
  EXPECT_NEAR(first.p_max, 4.0 / 9, 1e-15);
  EXPECT_NEAR(first.score_abs, 2.0 * std::log(2.0), 1e-15);
  // Query 1 is at key 3: distances 3 2 1 0.
  EXPECT_NEAR(row_of(p, inputs, 1).lse, std::log(1.0 / 8 + 1.0 / 4 + 1.0 / 2 + 1.0), 1e-15);
  // The mask removes keys; it changes no distance.
  p.causal = true;
  EXPECT_NEAR(row_of(p, inputs, 0).lse, std::log(1.0 / 4 + 1.0 / 2 + 1.0), 1e-15);
  p.window_left = 1;
  EXPECT_NEAR(row_of(p, inputs, 0).lse, std::log(1.0 / 2 + 1.0), 1e-15);
}

// More queries than keys: query 0 of 3 is at key -1 of 2, so the distances are 1 2.
TEST(ReferenceByHand, AlibiLeftOfTheKeys) {
  Problem p = single(3, 2);
  p.alibi_slopes = {std::log(2.0)};
  EXPECT_NEAR(row_of(p, Given({0, 0}, {1, 1}), 0).lse, std::log(1.0 / 2 + 1.0 / 4), 1e-15);
}

// Distances 4 3 2 1 0. Keys at 4, 1 and 0 are visible; the square roots are 2 1 0.
TEST(ReferenceByHand, AlibiOfTheSquareRoot) {
  Problem p = single(1, 5);
  p.alibi_slopes = {std::log(2.0)};
  p.alibi_sqrt = true;
  const double none = -1e5;
  const Given inputs({0, none, none, 0, 0}, {7, 0, 0, 7, 14});
  EXPECT_NEAR(row_of(p, inputs, 0).lse, std::log(1.0 / 4 + 1.0 / 2 + 1.0), 1e-15);
  EXPECT_NEAR(row_of(p, inputs, 0).o[0], (7.0 / 4 + 7.0 / 2 + 14.0) / (7.0 / 4), 1e-13);
}

TEST(ReferenceByHand, SlopesOfHeadsAndSequences) {
  Problem p = single(1, 2);
  p.num_heads_q = 2;
  p.q_lens = {1, 1};
  p.k_lens = {2, 2};
  const Given inputs({0, 0}, {1, 1});
  const auto lse = [](double slope) { return std::log(1.0 + std::exp(-slope)); };
  p.alibi_slopes = {1.0, 2.0};
  for (int seq : {0, 1}) {
    EXPECT_NEAR(row_of(p, inputs, 0, 0, seq).lse, lse(1.0), 1e-15);
    EXPECT_NEAR(row_of(p, inputs, 0, 1, seq).lse, lse(2.0), 1e-15);
  }
  p.alibi_slopes = {1.0, 2.0, 3.0, 4.0};
  EXPECT_NEAR(row_of(p, inputs, 0, 0, 1).lse, lse(3.0), 1e-15);
  EXPECT_NEAR(row_of(p, inputs, 0, 1, 1).lse, lse(4.0), 1e-15);
}

// tanh(large) = 1 limits both scores to 2. The bias of -6 then takes one to -4, which the cap alone would not
// allow.
TEST(ReferenceByHand, SoftcapBeforeAlibi) {
  Problem p = single(1, 2);
  p.softmax_scale = 0.5;
  p.softcap = 2.0;
  p.alibi_slopes = {6.0};
  const Result row = row_of(p, Given({1e6, 1e6}, {0, 1}), 0);
  EXPECT_NEAR(row.lse, 2.0 + std::log(1.0 + std::exp(-6.0)), 1e-15);
  EXPECT_NEAR(row.score_abs, 4.0, 1e-15);
}

// Weights 1 and 3 and a sink of 4: p = 1/8, 3/8. Half of the row goes to the sink.
TEST(ReferenceByHand, Sink) {
  Problem p = single(1, 2);
  p.sinks = {std::log(4.0)};
  const Result row = row_of(p, Given({0, std::log(3.0)}, {4, 8}), 0);
  EXPECT_NEAR(row.o[0], 4.0 / 8 + 24.0 / 8, 1e-14);
  EXPECT_NEAR(row.lse, std::log(8.0), 1e-15);
  EXPECT_NEAR(row.w2, 10.0 / 16, 1e-15) << "of what reaches the values";
  EXPECT_NEAR(row.p_max, 3.0 / 8, 1e-15);
  EXPECT_NEAR(row.a2[0], (16.0 + 9.0 * 64.0) / 64, 1e-5 * 9.25);
  EXPECT_NEAR(row.v2[0], (0.25 + 9.0 * 4.5 * 4.5) / 64, 1e-5 * (9.25 + 2.85));  // v - o = 1/2, 9/2
  EXPECT_NEAR(row.vv[0], 80.0, 1e-3);
  EXPECT_NEAR(row.score_abs, std::log(4.0), 1e-15);
  EXPECT_EQ(row.keys, 2);
}

// The sink is a score itself: scale, cap and bias do not apply to it.
TEST(ReferenceByHand, SinkIsNoKey) {
  Problem p = single(1, 1);
  p.softmax_scale = 100.0;
  p.softcap = 0.5;
  p.alibi_slopes = {7.0};
  p.sinks = {std::log(3.0)};
  EXPECT_NEAR(row_of(p, Given({0}, {8}), 0).o[0], 2.0, 1e-14);
}

TEST(ReferenceByHand, SinksOfHeads) {
  Problem p = single(1, 1);
  p.num_heads_q = 3;
  p.sinks = {0.0, std::log(3.0), -kInf};
  const Given inputs({0}, {12});
  EXPECT_NEAR(row_of(p, inputs, 0, 0).o[0], 6.0, 1e-14);
  EXPECT_NEAR(row_of(p, inputs, 0, 1).o[0], 3.0, 1e-14);
  EXPECT_NEAR(row_of(p, inputs, 0, 2).o[0], 12.0, 1e-14);
  EXPECT_EQ(row_of(p, inputs, 0, 2).lse, 0.0);
}

TEST(ReferenceByHand, SinkFarAboveOrBelow) {
  const Given inputs({1, 1}, {3, 3});
  Problem p = single(1, 2);
  p.sinks = {1e5};
  const Result above = row_of(p, inputs, 0);
  EXPECT_EQ(above.o[0], 0.0);
  EXPECT_EQ(above.lse, 1e5);
  EXPECT_EQ(above.p_max, 0.0);
  EXPECT_EQ(above.a2[0], 0.0);
  EXPECT_EQ(above.v2[0], 0.0);
  EXPECT_EQ(above.keys, 2);
  p.sinks = {-1e5};
  const Result below = row_of(p, inputs, 0);
  EXPECT_NEAR(below.o[0], 3.0, 1e-14);
  EXPECT_NEAR(below.lse, 1.0 + std::log(2.0), 1e-15);
  EXPECT_EQ(below.score_abs, 1.0);
  p.sinks = {101.0};  // p = exp(-100): its square underflows in float, but is still a moment
  const Result tiny = row_of(p, inputs, 0);
  EXPECT_NEAR(tiny.a2[0] / (18.0 * std::exp(-200.0)), 1.0, 1e-5);
}

// Scores are (dot + 2 v) / 4, then capped: the second product is scaled and capped as the first is.
TEST(ReferenceByHand, SecondQuery) {
  Problem p = single(1, 2);
  p.qv = true;
  p.softmax_scale = 0.25;
  const Given inputs({6, -2}, {1, 3});
  const double first = (6.0 + 2.0) / 4, second = (-2.0 + 6.0) / 4;
  Result row = row_of(p, inputs, 0);
  EXPECT_NEAR(row.lse, std::log(std::exp(first) + std::exp(second)), 1e-15);
  EXPECT_NEAR(row.dot_norm, 0.25 * std::hypot(1, 2) * std::hypot(6, 1), 1e-14);
  p.softcap = 1.5;
  row = row_of(p, inputs, 0);
  const double a = 1.5 * std::tanh(first / 1.5), b = 1.5 * std::tanh(second / 1.5);
  EXPECT_NEAR(row.o[0], (std::exp(a) + 3 * std::exp(b)) / (std::exp(a) + std::exp(b)), 1e-14);
}

// Four equal scores: p = 1/4 each. Kept weights are doubled, according to the contract's mask.
TEST(ReferenceByHand, Dropout) {
  Problem p = single(1, 4);
  p.p_dropout = 0.5f;
  p.dropout_seed = 11;
  p.dropout_offset = 5;
  p.probs = true;
  const std::vector<double> v = {1, 2, 4, 8};
  double o = 0, a2 = 0, kept = 0;
  for (int j = 0; j < 4; ++j) {
    if (!dropout_keeps(11, 5, 0, 0, j, 0x80000000u)) continue;
    o += 0.5 * v[j];
    a2 += 0.25 * v[j] * v[j];
    ++kept;
  }
  ASSERT_TRUE(kept > 0 && kept < 4) << "take another seed";
  double v2 = 0;
  for (int j = 0; j < 4; ++j) {
    const double w = dropout_keeps(11, 5, 0, 0, j, 0x80000000u) ? 0.5 : 0.0;
    v2 += (w * v[j] - 0.25 * o) * (w * v[j] - 0.25 * o);
  }
  const Result row = row_of(p, Given({0, 0, 0, 0}, v), 0);
  EXPECT_NEAR(row.o[0], o, 1e-14);
  EXPECT_NEAR(row.a2[0], a2, 1e-5 * a2);
  EXPECT_NEAR(row.v2[0], v2, 1e-5 * (a2 + v2));
  EXPECT_NEAR(row.w2, 1 / kept, 1e-15);
  EXPECT_NEAR(row.lse, std::log(4.0), 1e-15) << "LSE knows nothing of it";
  EXPECT_EQ(row.probs, (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  // The mask of packed row 7.
  p.q_begins = {7};
  o = 0;
  for (int j = 0; j < 4; ++j) o += dropout_keeps(11, 5, 0, 7, j, 0x80000000u) ? 0.5 * v[j] : 0.0;
  EXPECT_NE(o, row.o[0]) << "take another seed";
  EXPECT_NEAR(row_of(p, Given({0, 0, 0, 0}, v), 0).o[0], o, 1e-14);
}

// 3 queries on 1 key: only the last sees it. The others have only the sink.
TEST(ReferenceByHand, EmptyRows) {
  const Given inputs({0}, {8});
  Problem p = single(3, 1);
  p.causal = true;
  EXPECT_EQ(row_of(p, inputs, 1).lse, -kInf);
  p.sinks = {std::log(3.0)};
  p.alibi_slopes = {1.0};
  const Result row = row_of(p, inputs, 1);
  EXPECT_EQ(row.lse, std::log(3.0));
  EXPECT_EQ(row.keys, 0);
  for (double x :
       {row.o[0], row.a2[0], row.v2[0], row.vv[0], row.w2, row.p_max, row.score_abs, row.dot_norm}) {
    EXPECT_EQ(x, 0.0);
  }
  EXPECT_NEAR(row_of(p, inputs, 2).o[0], 2.0, 1e-14);
}

// Windows follow the diagonal. Query 0 of 2 is at key 3 of 5 and sees 2 3 4 with window (1, 1). Queries 0..3
// of 4 are at keys -2..1 of 2 and see nothing; 0; 0 1; 0 1.
TEST(ReferenceByHand, WindowsWhereLengthsDiffer) {
  const Given inputs({0, 0, 0, 0, 0}, {1, 2, 4, 8, 16});
  Problem p = single(2, 5);
  p.window_left = p.window_right = 1;
  EXPECT_NEAR(row_of(p, inputs, 0).o[0], 28.0 / 3, 1e-13);
  EXPECT_NEAR(row_of(p, inputs, 1).o[0], 24.0 / 2, 1e-13);
  p.causal = true;
  EXPECT_NEAR(row_of(p, inputs, 0).o[0], 12.0 / 2, 1e-13);
  p = single(4, 2);
  p.window_left = p.window_right = 1;
  EXPECT_EQ(row_of(p, inputs, 0).keys, 0);
  EXPECT_EQ(row_of(p, inputs, 1).o[0], 1.0);
  EXPECT_NEAR(row_of(p, inputs, 2).o[0], 1.5, 1e-15);
  EXPECT_NEAR(row_of(p, inputs, 3).o[0], 1.5, 1e-15);
}

// score_abs counts a score more than 28 below the largest as 28 below. It ignores a sink that is so low.
TEST(ReferenceByHand, ScoresThatCount) {
  Problem p = single(1, 3);
  const auto score_abs = [&](const std::vector<double>& dots) {
    return row_of(p, Given(dots, {1, 1, 1}), 0).score_abs;
  };
  EXPECT_EQ(score_abs({5, 0, -20}), 20.0);
  EXPECT_EQ(score_abs({5, 0, -1000}), 23.0);
  EXPECT_EQ(score_abs({500, 0, -1000}), 500.0);
  EXPECT_EQ(score_abs({-500, -510, -600}), 528.0);
  p.sinks = {-22.0};
  EXPECT_EQ(score_abs({5, 0, -1}), 22.0);
  p.sinks = {-24.0};
  EXPECT_EQ(score_abs({5, 0, -1}), 5.0);
  p.sinks = {60.0};
  EXPECT_EQ(score_abs({5, 0, -1}), 60.0);
  p.sinks.clear();
  p.alibi_slopes = {3.0};
  EXPECT_EQ(score_abs({1, 2, 3}), 5.0);
}

// A sink belongs to exactly one state of a row: to the suffix's as here, or to the prefix's as in vLLM.
TEST(ReferenceByHand, SinkOfACascadeInEitherState) {
  const Given all({0.3, 1.2, -0.5}, {1, -2, 4}), prefix({0.3, 1.2}, {1, -2}), suffix({-0.5}, {4});
  Problem whole = single(1, 3), two = single(1, 2), one = single(1, 1), none = single(1, 0);
  const std::vector<double> sink = {0.7};
  const auto merged = [](const Result& a, const Result& b) {
    MergedRow r;
    merge_states(std::vector<double>{a.lse, b.lse}, std::vector<double>{a.o[0], b.o[0]}, 1, r);
    return r;
  };
  whole.sinks = one.sinks = none.sinks = sink;
  const Result row = row_of(whole, all, 0);
  const Result here = row_of(two, prefix, 0);
  const MergedRow in_suffix = merged(here, row_of(one, suffix, 0));
  const MergedRow beside_no_key = merged(here, row_of(none, suffix, 0));
  one.sinks.clear();
  two.sinks = sink;
  const Result there = row_of(two, prefix, 0);
  const MergedRow in_prefix = merged(there, row_of(one, suffix, 0));
  for (const MergedRow& r : {in_suffix, in_prefix}) {
    EXPECT_NEAR(r.o[0], row.o[0], 1e-14);
    EXPECT_NEAR(r.lse, row.lse, 1e-14);
  }
  EXPECT_GT(std::abs(here.o[0] - there.o[0]), 0.1) << "the states themselves differ";
  // A suffix without keys has only the sink.
  EXPECT_NEAR(beside_no_key.o[0], there.o[0], 1e-14);
  EXPECT_NEAR(beside_no_key.lse, there.lse, 1e-14);
}

// A dominant key may have 0 in a channel. The rest of that channel comes from keys with e^-44 of its weight.
TEST(ReferenceByHand, MomentsBesideALargestValueOfZero) {
  const Result row = row_of(single(1, 3), Given({0, -44, -44}, {0, 1, -1}), 0);
  EXPECT_EQ(row.o[0], 0.0);
  EXPECT_GE(row.a2[0], 2 * std::exp(-88.0));
  EXPECT_GE(row.v2[0], 2 * std::exp(-88.0));
  EXPECT_LE(row.a2[0], 1e-28);
}

// Dropout may remove the dominant key. Moments and scores are then those of the remaining keys.
TEST(ReferenceByHand, MomentsOfWhatDropoutLeaves) {
  Problem p = single(1, 3);
  p.p_dropout = 0.5f;
  const auto keeps = [&](int32_t key) {
    return dropout_keeps(p.dropout_seed, 0, 0, 0, key, dropout_threshold(p.p_dropout));
  };
  while (keeps(0) || !keeps(1) || !keeps(2)) ++p.dropout_seed;
  const double w1 = 2 * std::exp(-44.0), w2 = 2 * std::exp(-44.5);
  const Result row = row_of(p, Given({0, -44, -44.5}, {5, 1, -1}), 0);
  EXPECT_NEAR(row.o[0] / (w1 - w2), 1.0, 1e-12);
  EXPECT_NEAR(row.a2[0] / (w1 * w1 + w2 * w2), 1.0, 1e-5);
  EXPECT_NEAR(row.w2, (w1 * w1 + w2 * w2) / ((w1 + w2) * (w1 + w2)), 1e-12);
  EXPECT_EQ(row.score_abs, 44.5);
  EXPECT_NEAR(row.p_max, 1.0, 1e-15);
}

// q and k of width 2, values of width 3.
TEST(ReferenceByHand, WideValues) {
  class Wide : public Inputs {
   public:
    void load_q(int, int, int, int, double* out) const override { out[0] = out[1] = 1.0; }
    void load_k(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j, out += 2) out[0] = out[1] = j == 0 ? 0.0 : 0.5 * std::log(3.0);
    }
    void load_v(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j, out += 3) out[0] = 4.0, out[1] = 4.0 * j, out[2] = -8.0 * j;
    }
  };
  Problem p = single(1, 2);
  p.head_dim = 2;
  p.head_dim_v = 3;
  const Result row = run(p, Wide(), all_rows(p), 1).begin()->second;
  ASSERT_EQ(row.o.size(), 3u);
  EXPECT_NEAR(row.o[0], 4.0, 1e-14);
  EXPECT_NEAR(row.o[1], 3.0, 1e-14);
  EXPECT_NEAR(row.o[2], -6.0, 1e-14);
  EXPECT_NEAR(row.a2[2], 36.0, 1e-4);
}

}  // namespace
}  // namespace attnbench::reference
