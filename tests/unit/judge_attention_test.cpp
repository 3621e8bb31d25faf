// The verdict on artificial outputs: right ones pass, and each kind of wrong one is caught by its detector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/cases/cost.h"
#include "harness/judge/sample.h"
#include "harness/judge/verify.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

constexpr Numerics kFp32Numerics{DType::kFp32, DType::kFp32, 0x1p-22};

Case make_case(DType dtype = DType::kBf16) {
  Case c;
  c.params.dtype = dtype;
  c.params.num_heads_q = 6;
  c.params.num_heads_kv = 2;
  c.params.head_dim = 32;
  c.params.causal = true;
  c.params.seqs = {{40, 40}, {3, 100}, {0, 5}, {9, 6}};
  c.params.allow_short_kv = true;
  return c;
}

/// Inputs by coordinate. They are written again here, so that the verifier's own adapter is tested too.
class Values : public reference::Inputs {
 public:
  explicit Values(const Case& c) : c_(c) {}
  void load_q(int s, int h, int b, int e, double* out) const override { load(Tensor::kQ, s, h, b, e, out); }
  void load_k(int s, int h, int b, int e, double* out) const override { load(Tensor::kK, s, h, b, e, out); }
  void load_v(int s, int h, int b, int e, double* out) const override { load(Tensor::kV, s, h, b, e, out); }

 private:
  void load(Tensor t, int s, int h, int b, int e, double* out) const {
    for (int pos = b; pos < e; ++pos) {
      for (int ch = 0; ch < c_.params.head_dim; ++ch) {
        float quad[4];
        values_of_quad({c_.seed, c_.params.data}, t, static_cast<uint32_t>(s), static_cast<uint32_t>(pos),
                       static_cast<uint32_t>(h), static_cast<uint32_t>(ch / 4), quad);
        *out++ = round_to(c_.params.dtype, quad[ch % 4]);
      }
    }
  }
  const Case& c_;
};

/// The right answer, rounded to the output's type.
HostOutputs right_outputs(const Case& c, const reference::Problem& problem) {
  const CaseCost cost = cost_of(c.params);
  const int hq = c.params.num_heads_q;
  const int d = c.params.head_dim;
  HostOutputs h;
  h.out.assign(static_cast<std::size_t>(cost.total_q * hq * d) * dtype_size(c.params.dtype), 0);
  h.lse.assign(static_cast<std::size_t>(cost.total_q * hq), -INFINITY);
  std::vector<int64_t> begin;
  int64_t total = 0;
  for (const SeqLen& s : c.params.seqs) {
    begin.push_back(total);
    total += s.q;
  }
  const Values values(c);
  reference::attend(problem, values, reference::all_rows(problem), 1, [&](const reference::RowBlock& block) {
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      const auto id = block.rows[r];
      const int64_t token = begin[static_cast<std::size_t>(id.seq)] + id.pos;
      h.lse[static_cast<std::size_t>(id.head * total + token)] = static_cast<float>(block.lse[r]);
      for (int ch = 0; ch < d; ++ch) {
        store_float(
            c.params.dtype, h.out.data(), (token * hq + id.head) * d + ch,
            static_cast<float>(block.o[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(ch)]));
      }
    }
  });
  return h;
}

void set(HostOutputs& h, const Case& c, int64_t token, int head, int channel, float x) {
  store_float(c.params.dtype, h.out.data(),
              (token * c.params.num_heads_q + head) * c.params.head_dim + channel, x);
}
float get(const HostOutputs& h, const Case& c, int64_t token, int head, int channel) {
  return load_float(c.params.dtype, h.out.data(),
                    (token * c.params.num_heads_q + head) * c.params.head_dim + channel);
}

Verdict judge(const Case& c, const HostOutputs& h, const Check& mode = CheckMode::kFull) {
  return verify_attention(c, h, kFp32Numerics, mode, 1);
}

TEST(VerifyAttention, RightOutputsPassInEveryType) {
  for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const Profile p :
         {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
      Case c = make_case(t);
      c.params.data = p;
      const Verdict v = judge(c, right_outputs(c, problem_of(c)));
      EXPECT_TRUE(v.pass) << dtype_name(t) << " " << profile_name(p) << ": " << v.reason;
      EXPECT_EQ(v.rows, v.rows_total);
      EXPECT_EQ(v.rows, (40 + 3 + 9) * 6);
      EXPECT_LT(v.max_z, 2.0) << "rounding alone stays under sqrt(3)";
      EXPECT_EQ(v.method, "full");
    }
  }
}

TEST(VerifyAttention, TheReferenceTakesTheScaleThatKernelsAreHanded) {
  Case c = make_case();
  c.params.head_dim = 128;
  const double exact = 1 / std::sqrt(128.0);
  EXPECT_EQ(problem_of(c).softmax_scale, 0x1.6a09e6p-4) << "1/sqrt(128) as a float";
  EXPECT_NE(problem_of(c).softmax_scale, exact);
}

TEST(VerifyAttention, OneWrongElementIsNamed) {
  const Case c = make_case();
  HostOutputs h = right_outputs(c, problem_of(c));
  set(h, c, 41, 5, 7, get(h, c, 41, 5, 7) + 0.05f);  // token 41 is position 1 of sequence 1
  const Verdict v = judge(c, h);
  EXPECT_FALSE(v.pass);
  EXPECT_THAT(v.reason, HasSubstr("seq 1 pos 1 head 5 channel 7"));
  EXPECT_EQ(v.worst.channel, 7);
}

TEST(VerifyAttention, NanAnywhereFailsEvenWhereNoRowIsSampled) {
  const Case c = make_case();
  for (const bool in_lse : {false, true}) {
    HostOutputs h = right_outputs(c, problem_of(c));
    if (in_lse) {
      h.lse[17] = NAN;
    } else {
      set(h, c, 20, 3, 31, NAN);
    }
    const Verdict v = judge(c, h, CheckMode::kSampled);
    EXPECT_FALSE(v.pass);
    EXPECT_THAT(v.reason, HasSubstr(in_lse ? "LSE of" : "O of seq 0 pos 20 head 3 channel 31"));
  }
}

TEST(VerifyAttention, TheErrorsOfANanAreNan) {
  const Case c = make_case();
  HostOutputs h = right_outputs(c, problem_of(c));
  EXPECT_LT(judge(c, h).max_abs, 1);
  set(h, c, 20, 3, 31, NAN);
  const Verdict v = judge(c, h);
  for (const double error : {v.max_abs, v.max_rel, v.max_ulp}) EXPECT_TRUE(std::isnan(error)) << error;
}

TEST(VerifyAttention, EmptyRowsMustBeZeroAndMinusInfinity) {
  const Case c = make_case();
  // Sequence 3 has 9 queries and 6 keys, so its first three rows (tokens 43..45) see nothing.
  HostOutputs h = right_outputs(c, problem_of(c));
  set(h, c, 44, 2, 0, 1e-6f);
  EXPECT_THAT(judge(c, h).reason, HasSubstr("seq 3 pos 1 head 2"));
  h = right_outputs(c, problem_of(c));
  h.lse[static_cast<std::size_t>(2 * 52 + 44)] = INFINITY;
  EXPECT_THAT(judge(c, h).reason, HasSubstr("LSE of seq 3 pos 1 head 2 is inf"));
}

TEST(VerifyAttention, EmptyRowsWithASinkHaveItAsTheirLse) {
  Case c = make_case();
  c.params.sinks = true;
  HostOutputs h = right_outputs(c, problem_of(c));
  EXPECT_TRUE(judge(c, h).pass) << judge(c, h).reason;
  h.lse[static_cast<std::size_t>(2 * 52 + 44)] = -INFINITY;
  EXPECT_THAT(judge(c, h).reason, HasSubstr("LSE of seq 3 pos 1 head 2 is -inf"));
}

TEST(VerifyAttention, IgnoredFeaturesFail) {
  Case c = make_case();
  c.params.alibi = Alibi::kPerSequence;
  c.params.sinks = true;
  c.params.softcap = 5;
  EXPECT_TRUE(judge(c, right_outputs(c, problem_of(c))).pass);
  const auto judge_without = [&](auto change) {
    reference::Problem p = problem_of(c);
    change(p);
    return judge(c, right_outputs(c, p)).pass;
  };
  EXPECT_FALSE(judge_without([](reference::Problem& p) { p.alibi_slopes.clear(); }));
  EXPECT_FALSE(judge_without([](reference::Problem& p) { p.alibi_slopes.resize(6); }))
      << "slopes of sequence 0 for all";
  EXPECT_FALSE(judge_without([](reference::Problem& p) { p.alibi_sqrt = true; }));
  EXPECT_FALSE(judge_without([](reference::Problem& p) { p.sinks.clear(); }));
  EXPECT_FALSE(judge_without([](reference::Problem& p) { p.softcap = 0; }));
}

TEST(VerifyAttention, LseInAnotherBaseFails) {
  const Case c = make_case();
  HostOutputs h = right_outputs(c, problem_of(c));
  for (float& x : h.lse) x *= 1.4426950408889634f;
  EXPECT_THAT(judge(c, h).reason, HasSubstr("LSE of"));
}

TEST(VerifyAttention, DroppedLastKeyFails) {
  Case c = make_case();
  c.params.causal = false;
  reference::Problem wrong = problem_of(c);
  for (int& k : wrong.k_lens) k = std::max(0, k - 1);
  EXPECT_FALSE(judge(c, right_outputs(c, wrong)).pass);
}

TEST(VerifyAttention, ScaleOffByATenthOfAPercentIsSeenAsBias) {
  // In bf16 no single element is conspicuous; only the slope over the case shows the error.
  Case c = make_case();
  c.params.seqs = {{300, 300}, {300, 300}};
  c.params.head_dim = 64;
  reference::Problem wrong = problem_of(c);
  wrong.softmax_scale *= 1.001;
  HostOutputs h = right_outputs(c, wrong);
  h.lse = right_outputs(c, problem_of(c)).lse;  // only O is wrong
  // A kernel that rounds P to bf16 may have larger errors than this in single elements.
  const Verdict v = verify_attention(c, h, {DType::kBf16, DType::kFp32, 0x1p-22}, CheckMode::kFull, 1);
  EXPECT_FALSE(v.pass);
  EXPECT_THAT(v.reason, testing::MatchesRegex(
                            "O is biased: its elements are 0\\.[0-9]+ % too (large|small) on average .*"));
}

TEST(SampleRows, HoldsEndsHeadsAndNoRowTwice) {
  Case c = make_case();
  c.params.num_heads_q = 32;
  c.params.num_heads_kv = 8;
  c.params.seqs.assign(20, {1000, 3000});
  c.params.seqs[7] = {1, 9};
  c.params.seqs[8] = {0, 9};
  const auto rows = sample_rows(c, 1);
  std::set<std::tuple<int, int, int>> unique;
  std::set<int> heads;
  std::vector<bool> first(20), last(20);
  for (const auto& r : rows) {
    EXPECT_TRUE(unique.emplace(r.seq, r.pos, r.head).second);
    heads.insert(r.head);
    const int q = c.params.seqs[static_cast<std::size_t>(r.seq)].q;
    ASSERT_TRUE(r.pos >= 0 && r.pos < q);
    if (r.pos == 0) first[static_cast<std::size_t>(r.seq)] = true;
    if (r.pos == q - 1) last[static_cast<std::size_t>(r.seq)] = true;
  }
  EXPECT_EQ(heads.size(), 32u);
  for (std::size_t b = 0; b < 20; ++b) EXPECT_EQ(first[b] && last[b], c.params.seqs[b].q > 0) << b;
  EXPECT_LT(rows.size(), 20u * 60u);
}

TEST(SampleRows, FewRowsAreDrawnByTheSeed) {
  Case c = make_case();
  c.params.num_heads_q = 32;
  c.params.num_heads_kv = 8;
  c.params.seqs.assign(20, {1000, 3000});
  c.params.seqs[8] = {0, 9};
  std::set<std::tuple<int, int, int>> seen;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const auto rows = few_rows(c, seed);
    EXPECT_GE(rows.size(), 8u);
    EXPECT_LE(rows.size(), 16u);
    std::set<std::pair<int, int>> groups;
    for (const auto& r : rows) {
      EXPECT_NE(r.seq, 8);
      EXPECT_TRUE(r.pos >= 0 && r.pos < 1000 && r.head >= 0 && r.head < 32);
      groups.emplace(r.seq, r.head / 4);
      seen.emplace(r.seq, r.pos, r.head);
    }
    EXPECT_LE(groups.size(), 2u) << "the reference loads K and V for each";
  }
  EXPECT_GT(seen.size(), 2500u);
  c.params.seqs.assign(3, {0, 9});
  EXPECT_TRUE(few_rows(c, 1).empty());
}

Case dear_case() {
  Case c = make_case();
  c.params.seqs.assign(6, {700, 1400});
  c.params.num_heads_q = c.params.num_heads_kv = 4;
  c.params.head_dim = 128;
  c.params.causal = false;
  EXPECT_GT(cost_of(c.params).flop, kCheapFlop);
  return c;
}

TEST(VerifyAttention, NobodyKnowsTheRowsBeforeTheComparison) {
  const Case c = dear_case();
  HostOutputs h = right_outputs(c, problem_of(c));
  const HostOutputs right = h;
  std::fill(h.out.begin(), h.out.end(), 0);
  for (const reference::RowId& r : sample_rows(c, 1)) {
    const int64_t token = r.seq * 700 + r.pos;
    for (int ch = 0; ch < 128; ++ch) set(h, c, token, r.head, ch, get(right, c, token, r.head, ch));
  }
  EXPECT_TRUE(judge(c, h, {CheckMode::kSampled, 1}).pass);
  std::set<uint64_t> seeds;
  for (int i = 0; i < 4; ++i) {
    const Verdict v = judge(c, h, CheckMode::kSampled);
    EXPECT_FALSE(v.pass);
    EXPECT_EQ(judge(c, h, {CheckMode::kSampled, v.rows_seed}).reason, v.reason)
        << "the seed repeats the rows";
    seeds.insert(v.rows_seed);
  }
  EXPECT_EQ(seeds.size(), 4u);
  EXPECT_EQ(judge(c, h).rows_seed, 0u) << "all rows: none are drawn";
}

TEST(VerifyAttention, SampleCatchesAWrongLastRow) {
  const Case c = dear_case();
  HostOutputs h = right_outputs(c, problem_of(c));
  EXPECT_TRUE(judge(c, h, CheckMode::kSampled).pass);
  EXPECT_EQ(judge(c, h, CheckMode::kSampled).method, "sampled");
  const int64_t token = 3 * 700 - 1;
  for (int head = 0; head < 4; ++head) {
    for (int ch = 0; ch < 128; ++ch) set(h, c, token, head, ch, get(h, c, token, head, ch) * 1.03f);
  }
  EXPECT_THAT(judge(c, h, CheckMode::kSampled).reason, HasSubstr("seq 2 pos 699"));
}

}  // namespace
}  // namespace attnbench
