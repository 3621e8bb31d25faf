// The power of a verdict: a launch with a mistake a little larger than a figure of check.power fails, and one with a
// smaller mistake passes. The reference computes the launches with mistakes, and verify_attention judges them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/judge/verify.h"
#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

using reference::Problem;
using reference::RowId;
using test::outputs_of;

Case case_of(DType dtype, std::vector<SeqLen> seqs, double softmax_scale = 0) {
  Case c;
  c.seed = 7;
  c.params.dtype = dtype;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = 4;
  c.params.head_dim = 64;
  c.params.causal = true;
  if (softmax_scale > 0) c.params.softmax_scale = softmax_scale;
  c.params.seqs = std::move(seqs);
  return c;
}

struct Setting {
  std::string name;
  Case item;
  Numerics numerics;
  bool lse;
  bool peaked = false;
};

std::vector<Setting> settings() {
  const std::vector<SeqLen> decode = {{1, 300}, {1, 77}, {1, 512}}, prefill = {{40, 40}, {3, 200}};
  constexpr Numerics kRoundsP{DType::kBf16, DType::kFp32, 0x1p-22};
  std::vector<Setting> all;
  const auto add = [&](const char* name, const Case& c, const Numerics& n) {
    const bool peaked = c.params.softmax_scale.has_value();
    all.push_back({fmt::format("{}, with LSE", name), c, n, true, peaked});
    all.push_back({fmt::format("{}, by O", name), c, n, false, peaked});
  };
  add("bf16 decode", case_of(DType::kBf16, decode), test::kNumerics);
  add("bf16 decode, P in bf16", case_of(DType::kBf16, decode), kRoundsP);
  add("fp32 decode", case_of(DType::kFp32, decode), test::kNumerics);
  add("bf16 peaked decode, P in bf16", case_of(DType::kBf16, decode, 0.7), kRoundsP);
  add("fp32 peaked decode", case_of(DType::kFp32, decode, 0.5), test::kNumerics);
  add("bf16 peaked prefill", case_of(DType::kBf16, {{5, 200}}, 0.6), test::kNumerics);
  add("fp16 prefill", case_of(DType::kFp16, prefill), test::kNumerics);
  add("bf16 prefill, P in bf16", case_of(DType::kBf16, prefill), kRoundsP);
  Case c = case_of(DType::kBf16, decode);
  c.params.softcap = 1;
  c.params.sinks = true;
  c.params.alibi = Alibi::kPerHead;
  add("softcap, sinks, ALiBi", c, kRoundsP);
  c = case_of(DType::kBf16, decode);
  c.params.dropout = 0.25;
  add("dropout", c, kRoundsP);
  return all;
}

Verdict judged(const Setting& s, HostOutputs outputs) {
  outputs.no_lse = !s.lse;
  if (outputs.no_lse) outputs.lse.clear();
  return verify_attention(s.item, outputs, s.numerics, CheckMode::kFull, 1);
}

HostOutputs with_scale(const Case& c, double e) {
  Problem p = problem_of(c);
  p.softmax_scale *= 1 + e;
  return outputs_of(c, p, CaseInputs(c, test::kNoneStored));
}

HostOutputs with_o_scale(const Case& c, double e) {
  const Problem p = problem_of(c);
  HostOutputs h = test::right_outputs(c);
  reference::attend(p, CaseInputs(c, test::kNoneStored), reference::all_rows(p), 1,
                    [&](const reference::RowBlock& b) {
                      const auto d = static_cast<std::size_t>(c.params.dim_v());
                      for (std::size_t i = 0; i < b.o.size(); ++i) {
                        const RowId& id = b.rows[i / d];
                        const int64_t at = test::token_of(c, id) * c.params.num_heads_q + id.head;
                        store_float(c.params.dtype, h.out.data(),
                                    at * static_cast<int64_t>(d) + static_cast<int64_t>(i % d),
                                    static_cast<float>(b.o[i] * (1 + e)));
                      }
                    });
  return h;
}

TEST(PowerOfAVerdict, ScaleErrors) {
  constexpr double kAbove = 1.1;
  for (const Setting& s : settings()) {
    // Of more queries, derivatives are computed of some rows alone, and others may show more.
    const double below_by = s.item.params.seqs.front().q == 1 ? 0.5 : 0.2;
    const Verdict right = judged(s, test::right_outputs(s.item));
    ASSERT_TRUE(right.pass && right.power) << s.name << right.reason;
    const auto expect = [&](const char* what, double figure, const auto& with) {
      for (const double sign : {1.0, -1.0}) {
        EXPECT_FALSE(judged(s, with(s.item, sign * kAbove * figure)).pass)
            << s.name << ": " << what << " " << sign * figure;
        const Verdict below = judged(s, with(s.item, sign * below_by * figure));
        EXPECT_TRUE(below.pass) << s.name << ": " << what << " " << sign * figure << ": " << below.reason;
      }
    };
    expect("softmax_scale", right.power->softmax_scale, with_scale);
    expect("O", right.power->o_scale, with_o_scale);
    if (!s.lse) {
      EXPECT_EQ(right.power->softmax_scale, right.power->softmax_scale_by_o);
    }
  }
}

TEST(PowerOfAVerdict, DroppedKey) {
  struct Weight {
    double p;
    RowId row;
    int64_t key;
  };
  int above = 0;
  for (const Setting& s : settings()) {
    if (!s.peaked) continue;  // others have no keys of such weights
    const Verdict right = judged(s, test::right_outputs(s.item));
    ASSERT_TRUE(right.pass && right.power) << s.name << right.reason;
    const double least = right.power->dropped_key;
    std::vector<Weight> weights;
    Problem p = problem_of(s.item);
    p.probs = true;
    const CaseInputs inputs(s.item, test::kNoneStored);
    reference::attend(p, inputs, reference::all_rows(p), 1, [&](const reference::RowBlock& b) {
      for (std::size_t i = 0; i < b.probs.size(); ++i) {
        const auto n = static_cast<std::size_t>(b.key_count);
        weights.push_back({b.probs[i], b.rows[i / n], b.key_begin + static_cast<int64_t>(i % n)});
      }
    });
    bool passed_below = false;
    for (const Weight& w : weights) {
      // A key's value may be nearer to O than the root mean square of its row; the LSE does not see values.
      const bool is_above = w.p > (s.lse ? 1.05 : 1.5) * least && w.p < (s.lse ? 1.2 : 2) * least;
      const bool is_below = w.p > 0.4 * least && w.p < 0.95 * least && !passed_below;
      if (!is_above && !is_below) continue;
      Problem without = problem_of(s.item);
      without.sees = [&](int seq, int pos, int head, int64_t key) {
        return key != w.key || RowId{seq, pos, head} != w.row;
      };
      const bool pass = judged(s, outputs_of(s.item, without, inputs)).pass;
      if (is_above) {
        EXPECT_FALSE(pass) << s.name << ": key of weight " << w.p << ", least " << least;
      }
      above += is_above;
      passed_below = passed_below || (is_below && pass);
    }
    EXPECT_TRUE(passed_below) << s.name;
  }
  EXPECT_GT(above, 50);
}

TEST(PowerOfAVerdict, IsUnknownWhereNothingIsSeen) {
  Setting s{"one key", case_of(DType::kBf16, {{1, 1}, {1, 1}}), test::kNumerics, false};
  const Verdict right = judged(s, test::right_outputs(s.item));
  ASSERT_TRUE(right.pass && right.power) << right.reason;
  EXPECT_TRUE(std::isnan(right.power->softmax_scale)) << "one key's weight is 1 by any scale";
  EXPECT_TRUE(std::isnan(right.power->dropped_key)) << "a row without its only key is empty";
  EXPECT_GT(right.power->o_scale, 0);
  HostOutputs zeros = test::right_outputs(s.item);
  std::fill(zeros.out.begin(), zeros.out.end(), 0);
  EXPECT_FALSE(judged(s, zeros).power) << "it fails";
}

}  // namespace
}  // namespace attnbench
