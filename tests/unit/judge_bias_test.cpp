// The bias detector for rows that few keys dominate, so that an error of a weight moves all channels
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/judge/case_inputs.h"
#include "harness/judge/row_findings.h"
#include "harness/judge/sample.h"
#include "harness/judge/verify.h"

namespace attnbench {
namespace {

constexpr Numerics kBf16P{DType::kBf16, DType::kFp32, 0x1p-22};
const std::vector<unsigned char> kNoStoredBytes;

/// Decodes whose softmax_scale gives each row to one key.
Case one_key_case(uint64_t seed) {
  Case c;
  c.seed = seed;
  c.params.num_heads_q = 32;
  c.params.num_heads_kv = 4;
  c.params.head_dim = 128;
  c.params.causal = true;
  c.params.softmax_scale = 20000;
  c.params.seqs = {{1, 777}, {1, 777}, {1, 777}};
  return c;
}

float towards_zero(float x) { return bits_float(float_bits(x) & 0xffff0000u); }

/// Outputs of a kernel whose weights are 2^(score - base) in float32, where base is the largest score rounded
/// to float32. Weights are rounded to bf16 for P.V but not for their sum. `rounded` rounds O to bf16.
HostOutputs fixed_base_outputs(const Case& c, float (*rounded)(float)) {
  const CaseParams& p = c.params;
  const CaseInputs inputs(c, kNoStoredBytes);
  const auto d = static_cast<std::size_t>(p.head_dim);
  const auto factor = static_cast<float>(problem_of(c).softmax_scale * 1.4426950408889634);
  HostOutputs h;
  const std::size_t rows = p.seqs.size();
  h.out.resize(rows * static_cast<std::size_t>(p.num_heads_q) * d * 2);
  h.lse.resize(rows * static_cast<std::size_t>(p.num_heads_q));
  std::vector<double> q(d), k, v, score;
  for (int b = 0; b < static_cast<int>(rows); ++b) {
    const int n = p.seqs[static_cast<std::size_t>(b)].k;
    for (int head = 0; head < p.num_heads_q; ++head) {
      k.resize(static_cast<std::size_t>(n) * d);
      v.resize(k.size());
      const int kv_head = head / (p.num_heads_q / p.num_heads_kv);
      inputs.load_q(b, head, 0, 1, q.data());
      inputs.load_k(b, kv_head, 0, n, k.data());
      inputs.load_v(b, kv_head, 0, n, v.data());
      std::vector<float> s;
      for (int j = 0; j < n; ++j) {
        double dot = 0;
        for (std::size_t ch = 0; ch < d; ++ch) dot += q[ch] * k[static_cast<std::size_t>(j) * d + ch];
        s.push_back(static_cast<float>(dot));
      }
      const float base = *std::max_element(s.begin(), s.end()) * factor;
      std::vector<float> o(d, 0.0f);
      float sum = 0;
      for (int j = 0; j < n; ++j) {
        const float w = std::exp2(std::fma(s[static_cast<std::size_t>(j)], factor, -base));
        const float rounded_w = round_to(DType::kBf16, w);
        sum += w;
        for (std::size_t ch = 0; ch < d; ++ch)
          o[ch] += rounded_w * static_cast<float>(v[static_cast<std::size_t>(j) * d + ch]);
      }
      const std::size_t row = static_cast<std::size_t>(b * p.num_heads_q + head);
      for (std::size_t ch = 0; ch < d; ++ch)
        store_float(DType::kBf16, h.out.data(), static_cast<int64_t>(row * d + ch), rounded(o[ch] / sum));
      h.lse[static_cast<std::size_t>(head) * rows + static_cast<std::size_t>(b)] =
          (base + std::log2(sum)) * 0.693147180559945f;
    }
  }
  return h;
}

Verdict judge_bias(const Case& c, const HostOutputs& h) {
  return verify_attention(c, h, kBf16P, CheckMode::kFull, 1);
}

/// The dominant weight is 2^e, where e is the error of the rounded base. Its rounding to bf16 is an error
/// common to all 128 channels.
TEST(Bias, RoundingOfOneWeightIsNoBias) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const Case c = one_key_case(seed);
    const Verdict v = judge_bias(c, fixed_base_outputs(c, [](float x) { return x; }));
    EXPECT_TRUE(v.pass) << "seed " << seed << ": " << v.reason;
    worst = std::max(worst, v.bias_se);
  }
  EXPECT_LT(worst, 4.0) << "12 draws of a normal variable, or of one with shorter tails";
  EXPECT_GT(worst, 0.7) << "not looser than needed";
}

TEST(Bias, TruncatedOutputIsStillSeen) {
  const Case c = one_key_case(1);
  const Verdict v = judge_bias(c, fixed_base_outputs(c, towards_zero));
  EXPECT_FALSE(v.pass);
  EXPECT_THAT(v.failed_by, ::testing::Contains(detector::kBias));
}

/// The numerator of a row's slope is sum_c g_c error_c with g = o / sigma^2. The test compares its variance
/// by the model with that by the weights themselves, u^2 / 3 sum_j (p_j t_j)^2 + ds^2 sum_j (p_j (t_j - sum_c
/// g_c o_c))^2 with t_j = sum_c g_c v_jc. Both leave out errors that are separate for each channel.
TEST(Bias, CommonVarianceIsThatOfTheRowsKeys) {
  for (const Profile profile :
       {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
    for (const int keys : {3, 60, 700}) {
      Case c;
      c.params.data = profile;
      c.params.num_heads_q = c.params.num_heads_kv = 8;
      c.params.head_dim = 128;
      c.params.probs = true;
      c.params.seqs = {{4, keys}};
      const ErrorModel model = error_model_of(c, kBf16P);
      const CaseInputs inputs(c, kNoStoredBytes);
      const reference::Problem problem = problem_of(c);
      double exact = 0, modelled = 0;
      reference::attend(
          problem, inputs, reference::all_rows(problem), 1, [&](const reference::RowBlock& block) {
            std::vector<double> v(static_cast<std::size_t>(keys) * 128);
            for (std::size_t r = 0; r < block.rows.size(); ++r) {
              inputs.load_v(0, block.rows[r].head, 0, keys, v.data());
              const RowMoments m{
                  block.lse[r],  block.w2[r], block.p_max[r], block.score_abs[r], block.dot_norm[r],
                  block.keys[r], 0,           block.w4[r]};
              std::vector<double> g;
              const double u2 = unit_roundoff(DType::kBf16) * unit_roundoff(DType::kBf16) / 3;
              const double ds2 = model.logit_variance(m, 0, 1);
              double xx = 0, apart = 0;
              for (std::size_t ch = 0; ch < 128; ++ch) {
                const std::size_t at = r * 128 + ch;
                const double sigma = model.sigma(m, block.o[at], block.a2[at], block.v2[at], block.vv[at]);
                g.push_back(block.o[at] / (sigma * sigma));
                xx += block.o[at] * g.back();
                apart += g.back() * g.back() * (u2 * block.a2[at] + ds2 * block.v2[at]);
              }
              double together = 0;
              for (std::size_t j = 0; j < static_cast<std::size_t>(keys); ++j) {
                double t = 0;
                for (std::size_t ch = 0; ch < 128; ++ch) t += g[ch] * v[j * 128 + ch];
                const double p = block.probs[r * static_cast<std::size_t>(block.key_count) + j];
                together += p * p * (u2 * t * t + ds2 * (t - xx) * (t - xx));
              }
              exact += (xx + together - apart) / (xx * xx);
              modelled += (1 + xx * model.common_variance(m)) / xx;
            }
          });
      EXPECT_GT(modelled / exact, 0.9) << profile_name(profile) << " keys " << keys;
      // The term of the logits, w4 - sum w^2, is a bound. Under huge it is the only term that matters.
      EXPECT_LT(modelled / exact, profile == Profile::kHuge ? 20 : 1.5)
          << profile_name(profile) << " keys " << keys;
    }
  }
}

}  // namespace
}  // namespace attnbench
