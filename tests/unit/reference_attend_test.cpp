// The reference compared with plain loops in long double, and with itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "reference/reference.h"
#include "tests/unit/reference_naive.h"

namespace attnbench::reference {
namespace {

TEST(ReferenceAttend, MasksAndLengths) {
  for (const Mask& mask : kMasks) {
    SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                    << mask.right);
    Problem p = pairs_of({0, 1, 2, 63, 64, 65, 200}, 3, 2, 1);
    set_mask(p, mask);
    expect_naive(p, {}, all_rows(p));
  }
}

// Windows that reduce a long sequence to bands, and blocks that only some rows of a tile see.
TEST(ReferenceAttend, LongSequencesInBands) {
  for (const Mask& mask : kMasks) {
    SCOPED_TRACE(testing::Message() << "causal " << mask.causal << " left " << mask.left << " right "
                                    << mask.right);
    Problem p;
    p.head_dim = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.q_lens = {700, 1300};
    p.k_lens = {1300, 700};
    set_mask(p, mask);
    expect_naive(p, {}, all_rows(p));
  }
}

TEST(ReferenceAttend, HeadDims) {
  for (int head_dim : {1, 2, 3, 64, 72, 128, 256}) {
    for (const Mask& mask : {Mask{false, -1, -1}, Mask{true, 40, -1}}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " causal " << mask.causal);
      Problem p = pairs_of({1, 65, 200}, head_dim, 1, 1);
      set_mask(p, mask);
      expect_naive(p, {}, all_rows(p));
    }
  }
}

TEST(ReferenceAttend, GroupedHeads) {
  for (const auto& [heads_q, heads_kv] : {std::pair{3, 3}, {6, 2}, {7, 1}, {16, 2}}) {
    SCOPED_TRACE(testing::Message() << heads_q << " heads on " << heads_kv);
    Problem p = pairs_of({1, 63, 130}, 8, heads_q, heads_kv);
    p.causal = true;
    expect_naive(p, {}, all_rows(p));
  }
}

TEST(ReferenceAttend, Softcap) {
  for (double cap : {0.5, 20.0}) {
    for (double factor : {1.0, 30.0}) {
      Problem p = pairs_of({2, 65, 200}, 16, 2, 1);
      p.softcap = cap;
      p.causal = true;
      expect_naive(p, {.q_factor = factor}, all_rows(p));
    }
  }
}

TEST(ReferenceAttend, PeakedLogits) {
  for (double factor : {30.0, 3000.0}) {
    Problem p = pairs_of({2, 65, 200}, 64, 2, 1);
    p.causal = true;
    expect_naive(p, {.q_factor = factor}, all_rows(p));
  }
}

// Equal weights and values: all roundings of a float sum may have the same direction.
TEST(ReferenceAttend, EqualTerms) {
  for (double value : {0.1, 0.7, 1.3}) {
    Problem p;
    p.head_dim = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.q_lens = p.k_lens = {700};
    p.causal = true;
    expect_naive(p, {.q_factor = 0.0, .v_offset = value, .v_spread = 0.0}, all_rows(p), 2, 1e-5);
  }
}

// Values whose squares are outside of float's range, and values whose mean is large compared with their
// spread.
TEST(ReferenceAttend, UnusualValues) {
  for (const Values& values :
       {Values{.v_factor = 1e25}, Values{.v_factor = 1e-25}, Values{.v_offset = 100.0}}) {
    Problem p = pairs_of({2, 65, 200}, 16, 1, 1);
    expect_naive(p, values, all_rows(p));
  }
}

// More keys than fit in a tile with the scores of all its rows.
TEST(ReferenceAttend, LongContext) {
  Problem p;
  p.head_dim = 1;
  p.num_heads_q = p.num_heads_kv = 1;
  p.q_lens = {40};
  p.k_lens = {150001};
  p.causal = true;
  expect_naive(p, {}, all_rows(p), 1);
}

TEST(ReferenceAttend, SomeRowsEqualAllRows) {
  for (const Mask& mask : kMasks) {
    Problem p = pairs_of({1, 64, 700}, 16, 4, 2);
    set_mask(p, mask);
    const Values values;
    const TestInputs inputs(p, values);
    const std::vector<RowId> all = all_rows(p);
    const Results full = run(p, inputs, all, 0);
    std::vector<RowId> some;
    for (size_t i = 0; i < all.size(); i += 1 + i * 7 % 90) some.push_back(all[i]);
    std::reverse(some.begin(), some.end());
    expect_close(run(p, inputs, some, 2), full);
    expect_close(run(p, inputs, {all.back()}, 2), full);
  }
}

TEST(ReferenceAttend, ThreadsDoNotMatter) {
  Problem p = pairs_of({1, 64, 300}, 16, 4, 2);
  p.causal = true;
  const Values values;
  const TestInputs inputs(p, values);
  const std::vector<RowId> rows = all_rows(p);
  const Results one = run(p, inputs, rows, 1);
  EXPECT_EQ(run(p, inputs, rows, 1), one);
  for (int num_threads : {0, 2, 3, 16}) expect_close(run(p, inputs, rows, num_threads), one);
}

TEST(ReferenceAttend, LoadsOnlyWhatIsSeen) {
  Problem p;
  p.head_dim = 4;
  p.num_heads_q = 8;
  p.num_heads_kv = 2;
  p.q_lens = {1000};
  p.k_lens = {1000};
  p.causal = true;
  p.window_left = 9;
  const Values values;
  const TestInputs inputs(p, values);
  // All heads of two distant positions: 10 keys each, loaded once per KV head.
  std::vector<RowId> rows;
  for (int head = 0; head < 8; ++head) {
    rows.push_back({0, 100, head});
    rows.push_back({0, 900, head});
  }
  run(p, inputs, rows, 1);
  EXPECT_EQ(inputs.keys_loaded(), 2 * 2 * 10);
}

// A packed batch gives the same as its sequences: none affects another.
TEST(ReferenceAttend, PackedEqualsSeparate) {
  Problem packed;
  packed.head_dim = 2;
  packed.num_heads_q = packed.num_heads_kv = 2;
  packed.q_lens = packed.k_lens = {1, 2, 3, 4};
  for (bool causal : {false, true}) {
    packed.causal = causal;
    const Values values;
    const TestInputs inputs(packed, values);
    const Results together = run(packed, inputs, all_rows(packed), 2);
    ASSERT_EQ(together.size(), 20u);
    for (int seq = 0; seq < 4; ++seq) {
      Problem alone = packed;
      alone.q_lens = alone.k_lens = {packed.q_lens[seq]};
      const Values same{.names = {seq}};
      const TestInputs alone_inputs(alone, same);
      for (const auto& [id, result] : run(alone, alone_inputs, all_rows(alone), 2)) {
        EXPECT_EQ(result, together.at({seq, id[1], id[2]}));
      }
    }
  }
}

// By hand: scores 0 and ln 3, so p = 1/4, 3/4; v = 4, 8.
TEST(ReferenceAttend, ByHand) {
  class Two : public Inputs {
   public:
    void load_q(int, int, int, int, double* out) const override { out[0] = 1.0; }
    void load_k(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j) *out++ = j == 0 ? 0.0 : 2.0 * std::log(3.0);
    }
    void load_v(int, int, int begin, int end, double* out) const override {
      for (int j = begin; j < end; ++j) *out++ = 4.0 * (j + 1);
    }
  };
  Problem p;
  p.head_dim = p.num_heads_q = p.num_heads_kv = 1;
  p.q_lens = {1};
  p.k_lens = {2};
  p.softmax_scale = 0.5;
  const Results results = run(p, Two(), all_rows(p), 1);
  const Result& row = results.at({0, 0, 0});
  EXPECT_NEAR(row.o[0], 7.0, 1e-14);
  EXPECT_NEAR(row.lse, std::log(4.0), 1e-15);
  EXPECT_NEAR(row.w2, 10.0 / 16.0, 1e-15);
  EXPECT_NEAR(row.a2[0], 37.0, 1e-5);
  EXPECT_NEAR(row.v2[0], 9.0 / 16.0 + 9.0 / 16.0, 1e-4);
  EXPECT_NEAR(row.vv[0], 16.0 + 64.0, 1e-3);
  EXPECT_NEAR(row.p_max, 0.75, 1e-15);
  EXPECT_NEAR(row.score_abs, std::log(3.0), 1e-15);
  EXPECT_NEAR(row.dot_norm, std::log(3.0), 1e-15);
  EXPECT_EQ(row.keys, 2);
}

}  // namespace
}  // namespace attnbench::reference
