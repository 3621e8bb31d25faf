// Features beyond the plain product, against plain loops: ALiBi, sinks, values of another width, dropout and
// probabilities.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "reference/reference.h"
#include "tests/unit/reference_naive.h"

namespace attnbench::reference {
namespace {

constexpr std::pair<int, int> kHeads[] = {{2, 2}, {4, 2}, {3, 1}};

std::vector<double> slopes(int count, double largest) {
  std::vector<double> s;
  for (int i = 0; i < count; ++i)
    s.push_back(largest * std::exp2(-0.7 * (i % 11)) * (i % 5 == 4 ? -0.1 : 1.0));
  return s;
}

// Sinks near the scores, without effect, far above every weight, and far below.
std::vector<double> sinks(int count) {
  const std::vector<double> some = {0.3, -kInf, 100.0, -50.0, 2.5, 1e4, -1e4};
  std::vector<double> s;
  for (int i = 0; i < count; ++i) s.push_back(some[i % some.size()]);
  return s;
}

TEST(ReferenceFeatures, Alibi) {
  for (const Mask& mask : kMasks) {
    for (const auto& [heads_q, heads_kv] : kHeads) {
      for (int variant = 0; variant < 4; ++variant) {
        SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                        << mask.right << ", " << heads_q << " heads, variant " << variant);
        Problem p = pairs_of({0, 2, 70}, 3, heads_q, heads_kv);
        set_mask(p, mask);
        const int per_sequence = variant % 2 ? static_cast<int>(p.q_lens.size()) : 1;
        p.alibi_slopes = slopes(heads_q * per_sequence, 0.8);
        p.alibi_sqrt = variant / 2;
        expect_naive(p, {}, all_rows(p));
      }
    }
  }
}

TEST(ReferenceFeatures, SecondQueries) {
  for (const Mask& mask : kMasks) {
    for (const auto& [heads_q, heads_kv] : kHeads) {
      for (const int width : {0, 5, 1}) {
        SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                        << mask.right << ", " << heads_q << " heads, width " << width);
        Problem p = pairs_of({0, 2, 70}, 3, heads_q, heads_kv);
        set_mask(p, mask);
        p.qv = true;
        p.head_dim_v = width;
        p.softcap = width == 5 ? 2.0 : 0.0;
        expect_naive(p, {}, all_rows(p));
      }
    }
  }
  Problem p = pairs_of({300}, 2, 2, 1);  // blocks of keys that some rows see in part
  p.qv = p.causal = p.probs = true;
  p.head_dim_v = 3;
  expect_naive(p, {}, all_rows(p));
}

// Keys that are lost at the end: the diagonal, windows and biases stay where they are.
TEST(ReferenceFeatures, LostLastKeys) {
  for (const Mask& mask : kMasks) {
    Problem p = pairs_of({0, 2, 17, 70}, 3, 4, 2);
    set_mask(p, mask);
    p.alibi_slopes = slopes(4, 0.8);
    for (const int k : p.k_lens) p.k_ends.push_back(k / 16 * 16);
    expect_naive(p, {}, all_rows(p));
    p.k_ends.assign(p.k_lens.size(), 1000);  // no key is lost
    expect_naive(p, {}, all_rows(p));
  }
}

// Scores down to -1300: far keys have no weight, and the largest score is not that of the last key.
TEST(ReferenceFeatures, AlibiOverLongSequences) {
  for (const Mask& mask : kMasks) {
    Problem p;
    p.head_dim = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.q_lens = {700, 1300};
    p.k_lens = {1300, 700};
    p.alibi_slopes = {0.01, 1.0};
    set_mask(p, mask);
    expect_naive(p, {}, all_rows(p));
  }
}

TEST(ReferenceFeatures, Sinks) {
  for (const Mask& mask : kMasks) {
    for (const auto& [heads_q, heads_kv] : {std::pair{7, 7}, {7, 1}, {14, 2}}) {
      SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                      << mask.right << ", " << heads_q << " heads");
      Problem p = pairs_of({0, 2, 70}, 3, heads_q, heads_kv);
      set_mask(p, mask);
      p.sinks = sinks(heads_q);
      expect_naive(p, {}, all_rows(p));
    }
  }
}

// A sink above every score keeps all digits of the moments, although every other weight is tiny.
TEST(ReferenceFeatures, SinksOverPeakedLogits) {
  for (double factor : {30.0, 100.0}) {
    Problem p = pairs_of({2, 130}, 64, 4, 2);
    p.causal = true;
    p.sinks = {0.0, 40.0, 120.0, -kInf};
    expect_naive(p, {.q_factor = factor}, all_rows(p));
  }
}

TEST(ReferenceFeatures, AllAtOnce) {
  for (const Mask& mask : kMasks) {
    for (const auto& [heads_q, heads_kv] : kHeads) {
      for (bool sqrt : {false, true}) {
        SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                        << mask.right << ", " << heads_q << " heads, sqrt " << sqrt);
        Problem p = pairs_of({0, 3, 65, 130}, 4, heads_q, heads_kv);
        p.head_dim_v = 3;
        set_mask(p, mask);
        p.softcap = 3.0;
        p.alibi_slopes = slopes(heads_q * static_cast<int>(p.q_lens.size()), 0.5);
        p.alibi_sqrt = sqrt;
        p.sinks = sinks(heads_q);
        expect_naive(p, {.q_factor = 8.0}, all_rows(p));
      }
    }
  }
}

TEST(ReferenceFeatures, ValuesOfAnotherWidth) {
  for (const auto& [head_dim, head_dim_v] : {std::pair{192, 128}, {64, 512}, {3, 1}, {1, 7}, {16, 16}}) {
    Problem p = pairs_of({1, 100}, head_dim, 2, 1);
    p.head_dim_v = head_dim_v;
    p.causal = true;
    expect_naive(p, {}, all_rows(p));
  }
}

// A feature with a neutral value changes no bit.
TEST(ReferenceFeatures, NeutralFeatures) {
  Problem p = pairs_of({1, 65, 200}, 16, 2, 1);
  p.causal = true;
  const Values values;
  const TestInputs inputs(p, values);
  const Results plain = run(p, inputs, all_rows(p), 2);
  Problem neutral = p;
  neutral.alibi_slopes = {0.0, 0.0};
  neutral.sinks = {-kInf, -kInf};
  neutral.head_dim_v = 16;
  EXPECT_EQ(run(neutral, inputs, all_rows(p), 2), plain);
  neutral.alibi_sqrt = true;
  neutral.alibi_slopes.assign(2 * p.q_lens.size(), 0.0);
  EXPECT_EQ(run(neutral, inputs, all_rows(p), 2), plain);
}

TEST(ReferenceFeatures, DropoutAndProbabilities) {
  for (const Mask& mask : kMasks) {
    for (const float share : {0.0f, 0.3f, 0.95f}) {
      Problem p = pairs_of({0, 2, 70}, 3, 4, 2);
      set_mask(p, mask);
      p.p_dropout = share;
      p.dropout_seed = 0x1234567890ull;
      p.dropout_offset = 0x300000001ull;
      p.probs = true;
      SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                      << mask.right << " dropout " << share);
      expect_naive(p, {}, all_rows(p));
      p.sinks = sinks(4);
      p.softcap = 2.0;
      p.head_dim_v = 5;
      expect_naive(p, {}, all_rows(p));
    }
  }
}

}  // namespace
}  // namespace attnbench::reference
