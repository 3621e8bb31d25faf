// attention_backward: right gradients pass, and each kind of wrong ones is caught by its detector. The gradients
// are the reference's own, rounded to the type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <random>

#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"
#include "harness/judge/verify.h"
#include "harness/ops/attention_backward/judge_mistakes.h"
#include "harness/ops/attention_backward/judge_model.h"
#include "harness/tensors/plan.h"

namespace attnbench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr Numerics kPlainNumerics{DType::kFp32, DType::kFp32, 0x1p-23};

Case gradient_case() {
  Case c;
  c.params.op = Op::kAttentionBackward;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = 2;
  c.params.head_dim = 32;
  c.params.causal = c.params.allow_short_kv = true;
  c.params.sinks = true;
  c.params.seqs = {{30, 40}, {0, 5}, {12, 8}};  // keys without queries, queries without keys
  return c;
}

int64_t row_at(const std::vector<SeqLen>& seqs, int32_t SeqLen::*length, int seq, int pos) {
  int64_t begin = 0;
  for (int b = 0; b < seq; ++b) begin += seqs[static_cast<std::size_t>(b)].*length;
  return begin + pos;
}

/// The right outputs, whose dq is multiplied by `dq_factor` before it is rounded.
HostOutputs right_gradients(const Case& c, double dq_factor = 1) {
  const CaseParams& p = c.params;
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  const reference::Problem problem = problem_of(c);
  HostOutputs h;
  const auto size = [&](int32_t SeqLen::*length, int heads, int dim) {
    return static_cast<std::size_t>(row_at(p.seqs, length, static_cast<int>(p.seqs.size()), 0)) *
           static_cast<std::size_t>(heads * dim) * dtype_size(p.dtype);
  };
  h.dq.resize(size(&SeqLen::q, p.num_heads_q, p.head_dim));
  h.dk.resize(size(&SeqLen::k, p.num_heads_kv, p.head_dim));
  h.dv.resize(size(&SeqLen::k, p.num_heads_kv, p.dim_v()));
  const std::vector<float> sinks = sinks_of(c);
  std::vector<double> dsinks(sinks.size());
  std::mutex mutex;
  reference::differentiate(
      problem, inputs, reference::all_rows(problem), reference::all_keys(problem),
      [](const reference::RowFacts&) { return reference::PairErrors{}; }, 1,
      {[&](const reference::QueryGrads& g) {
         for (std::size_t r = 0; r < g.rows.size(); ++r) {
           const int64_t row =
               row_at(p.seqs, &SeqLen::q, g.rows[r].seq, g.rows[r].pos) * p.num_heads_q + g.rows[r].head;
           for (int d = 0; d < p.head_dim; ++d)
             store_float(p.dtype, h.dq.data(), row * p.head_dim + d,
                         static_cast<float>(
                             dq_factor *
                             g.dq[r * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(d)]));
         }
       },
       [&](const reference::KeyGrads& g) {
         for (std::size_t r = 0; r < g.keys.size(); ++r) {
           const int64_t row =
               row_at(p.seqs, &SeqLen::k, g.keys[r].seq, g.keys[r].pos) * p.num_heads_kv + g.keys[r].kv_head;
           for (int d = 0; d < p.head_dim; ++d) {
             const std::size_t at = r * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(d);
             store_float(p.dtype, h.dk.data(), row * p.head_dim + d, static_cast<float>(g.dk[at]));
             store_float(p.dtype, h.dv.data(), row * p.head_dim + d, static_cast<float>(g.dv[at]));
           }
         }
       },
       [&](std::span<const reference::RowId> rows, std::span<const reference::RowFacts> facts) {
         const std::lock_guard lock(mutex);
         for (std::size_t r = 0; r < rows.size(); ++r) {
           const auto head = static_cast<std::size_t>(rows[r].head);
           if (!sinks.empty())
             dsinks[head] -= std::exp(static_cast<double>(sinks[head]) - facts[r].lse) * facts[r].delta;
         }
       }});
  for (const double x : dsinks) h.dsinks.push_back(static_cast<float>(x));
  return h;
}

Verdict judged_gradients(const Case& c, const HostOutputs& h) {
  return verify_backward(c, h, kPlainNumerics, CheckMode::kFull, 1);
}

void shift(const Case& c, std::vector<unsigned char>& to, int64_t at, float x) {
  store_float(c.params.dtype, to.data(), at, load_float(c.params.dtype, to.data(), at) + x);
}

TEST(VerifyBackward, RightGradientsPass) {
  for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    Case c = gradient_case();
    c.params.dtype = t;
    const Verdict v = judged_gradients(c, right_gradients(c));
    EXPECT_TRUE(v.pass) << dtype_name(t) << ": " << v.reason;
    EXPECT_EQ(v.rows, v.rows_total);
    EXPECT_EQ(v.rows_total, 42 * 4 + 53 * 2);
    EXPECT_EQ(v.method, "full");
    EXPECT_LT(v.rms_z, 1.0);
  }
}

TEST(VerifyBackward, EachDetectorFindsItsOwn) {
  const Case c = gradient_case();
  const HostOutputs right = right_gradients(c);
  const auto wrong_by = [&](const std::function<void(HostOutputs&)>& change) {
    HostOutputs h = right;
    change(h);
    return judged_gradients(c, h);
  };
  const Verdict nan = wrong_by([&](HostOutputs& h) { shift(c, h.dv, 7, NAN); });
  EXPECT_THAT(nan.failed_by, Contains(detector::kPoison));
  EXPECT_THAT(nan.reason, HasSubstr("dv of seq 0 pos 0 head 0 channel 7 is NaN"));
  EXPECT_TRUE(std::isnan(nan.max_abs) && std::isnan(nan.max_rel)) << nan.max_abs << " " << nan.max_rel;
  // Sequence 2 has 12 queries and 8 keys: its first 4 queries see none. Sequence 1 has no queries.
  const Verdict query = wrong_by([&](HostOutputs& h) { shift(c, h.dq, 30 * 4 * 32, 1e-3f); });
  EXPECT_THAT(query.failed_by, Contains(detector::kEmptyRow));
  EXPECT_THAT(query.reason, HasSubstr("dq of seq 2 pos 0 head 0 channel 0"));
  const Verdict key = wrong_by([&](HostOutputs& h) { shift(c, h.dk, 40 * 2 * 32, 1e-3f); });
  EXPECT_THAT(key.failed_by, Contains(detector::kEmptyRow));
  EXPECT_THAT(key.reason, HasSubstr("dk of seq 1 pos 0 head 0 channel 0"));
  EXPECT_THAT(wrong_by([&](HostOutputs& h) { shift(c, h.dk, 900, 0.5f); }).failed_by,
              Contains(detector::kMaxZ));
  const Verdict sink = wrong_by([&](HostOutputs& h) { h.dsinks[2] *= 1.5f; });
  EXPECT_EQ(sink.failed_by, std::vector<std::string>{detector::kDsinks});
  EXPECT_THAT(sink.reason, HasSubstr("dsinks of head 2"));
  EXPECT_THAT(wrong_by([&](HostOutputs& h) { h.dsinks[1] = NAN; }).failed_by, Contains(detector::kPoison));
}

/// A factor that no element shows is seen by all of them.
TEST(VerifyBackward, ASmallFactorIsABias) {
  const Case c = gradient_case();
  const Verdict v = judged_gradients(c, right_gradients(c, 1.001));
  EXPECT_EQ(v.failed_by, std::vector<std::string>{detector::kBias});
  EXPECT_THAT(v.reason, HasSubstr("dq is biased"));
  EXPECT_TRUE(judged_gradients(c, right_gradients(c, 1.00002)).pass);
}

TEST(VerifyBackward, CluesNameTheGradientAndItsFactor) {
  const Case c = gradient_case();
  const Verdict v = judged_gradients(c, right_gradients(c, 8));
  ASSERT_EQ(v.clues.size(), 2u);
  EXPECT_THAT(v.clues[0],
              HasSubstr("0 of 106 in dk, 0 of 106 in dv: perhaps dS is right: the sum over the keys"));
  EXPECT_EQ(v.clues[1], "looks like: dq is right but for a factor of 8");
  EXPECT_TRUE(judged_gradients(c, right_gradients(c)).clues.empty());
}

/// All mistakes that small sequences show, each in a kernel that makes it on every pair.
TEST(VerifyBackward, CluesNameKnownMistakes) {
  const Case c = gradient_case();
  const CaseParams& p = c.params;
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  const reference::Problem problem = problem_of(c);
  int named = 0;
  for (const GradMistake& m : grad_mistakes(problem, p.dtype)) {
    if (m.fault.empty() || m.fault.starts_with("last_queries")) continue;  // a sequence has fewer than 16
    HostOutputs h = right_gradients(c);
    for (int b = 0; b < static_cast<int>(p.seqs.size()); ++b) {
      const GradPairs pairs(problem, problem, inputs, b, 1);
      const auto write = [&](Grad of, std::vector<unsigned char>& to, int32_t SeqLen::*length, int heads) {
        for (int pos = 0; pos < p.seqs[static_cast<std::size_t>(b)].*length; ++pos) {
          for (int head = 0; head < heads; ++head) {
            const std::vector<double> row = pairs.row(m.rule, of, pos, head);
            for (std::size_t i = 0; i < row.size(); ++i)
              store_float(
                  p.dtype, to.data(),
                  (row_at(p.seqs, length, b, pos) * heads + head) * p.head_dim + static_cast<int64_t>(i),
                  static_cast<float>(row[i]));
          }
        }
      };
      write(Grad::kDq, h.dq, &SeqLen::q, p.num_heads_q);
      write(Grad::kDk, h.dk, &SeqLen::k, p.num_heads_kv);
      write(Grad::kDv, h.dv, &SeqLen::k, p.num_heads_kv);
    }
    EXPECT_THAT(judged_gradients(c, h).clues, Contains(HasSubstr(m.text))) << m.fault;
    ++named;
  }
  EXPECT_GE(named, 14);
}

/// A row whose elements are each plausible: 3 standard deviations off.
TEST(VerifyBackward, AWrongRowOfPlausibleElements) {
  const Case c = gradient_case();
  HostOutputs h = right_gradients(c);
  for (int64_t d = 0; d < 32; ++d) {
    const int64_t at = (20 * 4 + 1) * 32 + d;
    const float x = load_float(c.params.dtype, h.dq.data(), at);
    shift(c, h.dq, at, (d % 2 ? 3.0f : -3.0f) * std::abs(x) * 0x1p-8f);
  }
  EXPECT_THAT(judged_gradients(c, h).failed_by, Contains(detector::kRowZ2));
}

/// Roundings of P and dS to the declared type are explained, and are not explained by fp32.
TEST(VerifyBackward, TheToleranceFollowsTheDeclaredType) {
  Case c = gradient_case();
  c.params.dtype = DType::kFp32;
  HostOutputs h = right_gradients(c);
  std::mt19937 rng(1);
  std::normal_distribution<float> noise;
  for (int64_t i = 0; i < 30 * 4 * 32; ++i)
    shift(c, h.dq, i, load_float(c.params.dtype, h.dq.data(), i) * noise(rng) * 0x1p-12f);
  EXPECT_FALSE(judged_gradients(c, h).pass);
  EXPECT_TRUE(verify_backward(c, h, {DType::kBf16, DType::kFp32, 0x1p-23}, CheckMode::kFull, 1).pass);
}

/// dk as FlashAttention 2 has it: the part of each query head is rounded to bf16, then the parts are summed. The
/// parts are the dk of a problem without groups, whose KV heads are copies.
class EachHeadItsOwnKeys : public reference::BackwardInputs {
 public:
  EachHeadItsOwnKeys(const CaseInputs& in, int group) : in_(in), group_(group) {}
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    in_.load_q(seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    in_.load_k(seq, head / group_, begin, end, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    in_.load_v(seq, head / group_, begin, end, out);
  }
  void load_d_out(int seq, int head, int begin, int end, double* out) const override {
    in_.load_d_out(seq, head, begin, end, out);
  }

 private:
  const CaseInputs& in_;
  int group_;
};

TEST(VerifyBackward, PartsOfHeadsThatAreRoundedMustBeDeclared) {
  Case c = gradient_case();
  c.params.sinks = false;
  c.params.num_heads_q = 16;
  c.params.num_heads_kv = 1;
  c.params.seqs = {{200, 200}};
  c.params.dtype = DType::kBf16;
  HostOutputs h = right_gradients(c);
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  reference::Problem apart = problem_of(c);
  apart.num_heads_kv = 16;
  std::vector<double> dk(200 * 32);
  std::mutex mutex;
  reference::differentiate(apart, EachHeadItsOwnKeys(inputs, 16), {}, reference::all_keys(apart),
                           [](const reference::RowFacts&) { return reference::PairErrors{}; }, 1,
                           {[](const reference::QueryGrads&) {},
                            [&](const reference::KeyGrads& g) {
                              const std::lock_guard lock(mutex);
                              for (std::size_t i = 0; i < g.dk.size(); ++i)
                                dk[static_cast<std::size_t>(g.keys[i / 32].pos) * 32 + i % 32] +=
                                    static_cast<double>(round_to(DType::kBf16, static_cast<float>(g.dk[i])));
                            },
                            [](std::span<const reference::RowId>, std::span<const reference::RowFacts>) {}});
  for (std::size_t i = 0; i < dk.size(); ++i)
    store_float(DType::kBf16, h.dk.data(), static_cast<int64_t>(i), static_cast<float>(dk[i]));
  Numerics n = kPlainNumerics;
  EXPECT_FALSE(verify_backward(c, h, n, CheckMode::kFull, 1).pass);
  n.head_grad_type = DType::kBf16;
  const Verdict v = verify_backward(c, h, n, CheckMode::kFull, 1);
  EXPECT_TRUE(v.pass) << v.reason;
  EXPECT_GT(v.max_z, 2) << "the declared rounding explains what is there, and not much more";
  // A group of one head has nothing to sum.
  Case single = gradient_case();
  const Verdict with = verify_backward(single, right_gradients(single), n, CheckMode::kFull, 1);
  single.params.num_heads_kv = single.params.num_heads_q;
  const HostOutputs right = right_gradients(single);
  EXPECT_EQ(verify_backward(single, right, n, CheckMode::kFull, 1).max_z,
            verify_backward(single, right, kPlainNumerics, CheckMode::kFull, 1).max_z);
  EXPECT_TRUE(with.pass);
}

/// A stored reference gives the verdict of verify_backward.
TEST(VerifyBackward, AStoredReferenceGivesTheSameVerdict) {
  const Case c = gradient_case();
  const StoredGradients stored(c, kPlainNumerics, CheckMode::kFull, 1);
  for (const double factor : {1.0, 1.001, 8.0}) {
    const HostOutputs h = right_gradients(c, factor);
    const Verdict one = stored.judge(h), other = judged_gradients(c, h);
    EXPECT_EQ(one.failed_by, other.failed_by);
    EXPECT_EQ(one.max_z, other.max_z);
    EXPECT_EQ(one.rows, other.rows);
  }
}

TEST(VerifyBackward, ASampleOfKeysHasEndsAndStaysInItsBudget) {
  Case c = gradient_case();
  const auto keys_of = [&](std::size_t seq, CheckMode mode) {
    std::vector<int> found;
    for (const reference::KeyId& k : keys_to_compare(c, problem_of(c), {mode, 1})) {
      if (k.seq == static_cast<int>(seq)) found.push_back(k.pos);
    }
    return found;
  };
  EXPECT_EQ(keys_of(0, CheckMode::kFull).size(), 80u);
  c.params.seqs = {{2000, 2000}, {131072, 131072}};
  c.params.head_dim = 128;
  const std::vector<int> shorter = keys_of(0, CheckMode::kSampled), longer = keys_of(1, CheckMode::kSampled);
  EXPECT_EQ(shorter.front(), 0);
  EXPECT_EQ(shorter.back(), 1999);
  // Its whole forward pass would take 13 TFLOP, so only its last keys are looked at.
  ASSERT_FALSE(longer.empty());
  EXPECT_GT(longer.front(), 100000);
  EXPECT_EQ(longer.back(), 131071);
}

}  // namespace
}  // namespace attnbench
