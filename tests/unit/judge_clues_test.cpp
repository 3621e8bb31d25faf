// Kernels with typical mistakes of authors, and the clues that their outputs give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <numeric>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/clues.h"
#include "harness/judge/logit_factor.h"
#include "harness/judge/misread.h"
#include "harness/judge/mistakes.h"
#include "harness/judge/sample.h"
#include "harness/judge/trait.h"
#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

using test::case_of;
using test::clues;
using test::computed_by;
using test::kNoneStored;
using test::kNumerics;
using test::Mistake;
using test::outputs_of;
using test::right_outputs;
using test::token_of;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Clues, ThereAreNoneAboutARightOutput) {
  for (const bool causal : {false, true})
    EXPECT_THAT(clues(case_of(causal), right_outputs(case_of(causal))), IsEmpty());
}

/// Each mistake is named if its problem was solved: the case distinguishes it from all others, except from
/// those that give the same result on it.
void expect_each_is_named(const Case& c) {
  const CaseInputs inputs(c, kNoneStored);
  const reference::Problem right = problem_of(c);
  int shown = 0;
  for (const auto& s : mistakes_of(c, right, inputs)) {
    const auto found = clues(c, outputs_of(s.item ? *s.item : c, s.problem, *s.inputs));
    if (found.empty() || s.rare) continue;  // this case does not show the mistake
    if (found.front().find("LSE alone") != std::string::npos) continue;  // nor this one, but by rounding
    ++shown;
    EXPECT_THAT(found, Contains(StartsWith("looks like: " + s.text))) << s.text;
  }
  EXPECT_GE(shown, 8);
}

TEST(Clues, EveryMistakeIsNamed) {
  Case causal = case_of(true);
  causal.params.softcap = 5;
  causal.params.alibi = Alibi::kPerSequence;
  causal.params.sinks = true;
  expect_each_is_named(causal);
  Case three_heads = case_of(true);
  three_heads.params.num_heads_q = 6;
  expect_each_is_named(three_heads);
  Case window = case_of(false);
  window.params.window_left = 7;
  window.params.window_right = 3;
  window.params.dropout = 0.3;
  expect_each_is_named(window);
  Case full = case_of(false);
  full.params.kv_dtype = KvDType::kE4m3;
  full.params.q_dtype = DType::kE4m3;
  full.params.softmax_scale = 0.3;
  expect_each_is_named(full);
  Case bits = case_of(false);
  bits.params.custom_mask = CustomMask::kRandom;
  expect_each_is_named(bits);
  Case lists = case_of(true);
  lists.params.topk = 16;
  expect_each_is_named(lists);
}

TEST(Clues, MistakesInPlainLoopsAreNamed) {
  const double s = 1 / std::sqrt(32.0);
  const std::vector<Mistake> mistakes = {
      {.text = "softmax_scale (0.1768) is not applied", .score = [](double x) { return x; }},
      {.text = "softmax_scale is applied twice", .score = [s](double x) { return x * s * s; }},
      {.text = "log2(e) is missing in scores of exp2",
       .score = [s](double x) { return x * s * std::log(2.0); }},
      {.text = "log2(e) is applied to scores of exp",
       .score = [s](double x) { return x * s / std::log(2.0); }},
      {.text = "row j + 1 of V is read for key j, round the ends of a sequence",
       .v_token = [](int j, int, SeqLen l) { return (j + 1) % l.k; }},
      {.text = "row j - 1 of K and V is read for key j",
       .k_token = [](int j, int, SeqLen) { return std::max(j - 1, 0); }},
      {.text = "row j - 8 of V is read for key j",
       .v_token = [](int j, int, SeqLen) { return j < 8 ? j : j - 8; }},
      {.text = "the causal mask is not applied", .sees = [](int, int, SeqLen) { return true; }},
      {.text = "the causal mask shows one key too many",
       .sees = [](int i, int j, SeqLen l) { return j <= i + l.k - l.q + 1; }},
      {.text = "the causal mask hides one key too many",
       .sees = [](int i, int j, SeqLen l) { return j < i + l.k - l.q; }},
      {.text = "the causal mask is aligned top-left", .sees = [](int i, int j, SeqLen) { return j <= i; }},
      {.text = "the last key of each page or tile of 16 is left out",
       .sees = [](int i, int j, SeqLen l) { return j <= i + l.k - l.q && j % 16 != 15; }},
      {.text = "the first key of each tile of 32 is left out",
       .sees = [](int i, int j, SeqLen l) { return j <= i + l.k - l.q && j % 32 != 0; }},
      {.text = "the last key of sequences that fill their last page of 16 is left out",
       .sees = [](int i, int j, SeqLen l) { return j <= i + l.k - l.q && (j < l.k - 1 || l.k % 16 != 0); }},
      {.text = "query head h reads KV head h % 2, not h / 2", .k_head = [](int h) { return h % 2; }},
      {.text = "query head h reads KV head min(h, 1), not h / 2",
       .k_head = [](int h) { return std::min(h, 1); }},
      {.text = "all query heads read KV head 0", .k_head = [](int) { return 0; }},
      {.text = "query head h reads KV head (h / 2 + 1) % 2, not h / 2",
       .k_head = [](int h) { return (h / 2 + 1) % 2; }},
      {.text = "query head h reads V head h % 2, not h / 2; the K head is right",
       .v_head = [](int h) { return h % 2; }},
      {.text = "query head h reads V head (h / 2 + 1) % 2, not h / 2; the K head is right",
       .v_head = [](int h) { return (h / 2 + 1) % 2; }},
      {.text = "all query heads read V head 0; the K head is right", .v_head = [](int) { return 0; }},
      {.text = "query head h reads K head min(h, 1), not h / 2; the V head is right",
       .k_head = [](int h) { return std::min(h, 1); },
       .v_head = [](int h) { return h / 2; }},
      {.text = "a causal mask is applied, but the case has none", .causal = false},
      {.text =
           "the causal mask hides one key too many: keys j < diag are seen, not j <= diag, in a part of the rows",
       .sees = [](int i, int j, SeqLen l) { return j < i + l.k - l.q + (i % 3 != 0); }},
      {.text =
           "the causal mask is aligned top-left, j <= i, not j <= i + len_k - len_q, in a part of the rows",
       .sees = [](int i, int j, SeqLen l) { return j <= i + (i % 2 == 0 ? l.k - l.q : 0); }},
      {.text = "neither O nor the sum is rescaled when a key raises the maximum", .block = 1},
      {.text = "neither O nor the sum is rescaled when a later block of 8 keys raises the maximum",
       .block = 8},
      {.text = "neither O nor the sum is rescaled when a block of 32 keys before those summed so far raises",
       .block = 32,
       .backwards = true},
  };
  for (const Mistake& m : mistakes) {
    const Case c = case_of(m.causal);
    const auto found = clues(c, computed_by(m, m.causal ? c : case_of(true)));
    EXPECT_THAT(found, Contains(StartsWith("looks like: " + m.text))) << m.text;
  }
  EXPECT_THAT(clues(case_of(true), computed_by({}, case_of(true))), IsEmpty());
}

HostOutputs with_logits_times(double factor, const Case& c) {
  reference::Problem wrong = problem_of(c);
  wrong.softmax_scale *= factor;
  return outputs_of(c, wrong, CaseInputs(c, kNoneStored));
}

TEST(ClueOfLogits, OneFactorOnAllOfThemIsNamed) {
  const auto named = [](double factor, const std::string& text, const Case& c) {
    EXPECT_THAT(clues(c, with_logits_times(factor, c)),
                Contains(StartsWith("looks like: logits times " + text)))
        << factor;
  };
  Case c = case_of(true);
  named(1.3, "1.3 (softmax_scale 0.2298 in place of 0.1768) (all 64 wrong rows tried match this mistake)", c);
  named(std::numbers::sqrt2, "1.414 (softmax_scale 0.25 in place of 0.1768): sqrt(2)", c);
  named(0.5, "0.5 (softmax_scale 0.08839 in place of 0.1768): half the scale", c);
  named(1 / std::sqrt(0.17677669), "2.378 (softmax_scale 0.4204 in place of 0.1768): its root", c);
  named(1.01, "1.01 (", c);
  named(17, "17 (", c);
  c.params.softcap = 5;
  c.params.alibi = Alibi::kPerSequence;
  c.params.sinks = true;
  named(0.8, "0.8 (", c);
}

TEST(ClueOfLogits, TheFactorIsFoundWithoutAnLse) {
  const Case c = case_of(false);
  HostOutputs h = with_logits_times(1.5, c);
  h.no_lse = true;
  EXPECT_THAT(clues(c, h), Contains(StartsWith("looks like: logits times 1.5")));
  h = with_logits_times(1.5, c);
  for (float& lse : h.lse) lse *= std::numbers::log2e_v<float>;
  EXPECT_THAT(clues(c, h), Contains(AllOf(StartsWith("looks like: logits times 1.5"),
                                          HasSubstr(", but not in their LSE"))));
}

/// The factor that the outputs suggest, whatever else may be wrong with them.
std::optional<LogitFactor> factor_of(const Case& c, const HostOutputs& outputs) {
  const CaseInputs inputs(c, kNoneStored);
  const reference::Problem right = problem_of(c);
  const Launched launched{c, outputs, kNumerics};
  const auto ids = reference::all_rows(right);
  return logit_factor(launched, right, inputs, find_rows(launched, right, inputs, ids, 1), ids, 1);
}

TEST(ClueOfLogits, OtherMistakesAreNotTakenForAFactor) {
  for (const bool causal : {false, true}) {
    Case c = case_of(causal);
    c.params.window_left = 7;
    c.params.kv_dtype = KvDType::kE4m3;
    c.params.softcap = 5;
    const CaseInputs inputs(c, kNoneStored);
    int tried = 0;
    for (const auto& s : mistakes_of(c, problem_of(c), inputs)) {
      const bool scale = s.problem.softmax_scale != problem_of(c).softmax_scale;
      HostOutputs h = outputs_of(c, s.problem, *s.inputs);
      EXPECT_TRUE(!factor_of(c, h) || scale) << s.text;
      h.no_lse = true;
      EXPECT_TRUE(!factor_of(c, h) || scale) << s.text;
      tried += !scale;
    }
    EXPECT_GE(tried, 8);
  }
}

TEST(ClueOfLogits, AFactorOnOneHeadAloneIsNotOnAll) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  const HostOutputs wrong = with_logits_times(1.3, c);
  const auto total = static_cast<std::size_t>(cost_of(c.params).total_q);
  for (std::size_t token = 0; token < total; ++token) {
    h.lse[2 * total + token] = wrong.lse[2 * total + token];
    std::copy_n(wrong.out.begin() + static_cast<std::ptrdiff_t>((token * 4 + 2) * 64), 64,
                h.out.begin() + static_cast<std::ptrdiff_t>((token * 4 + 2) * 64));
  }
  const auto found = clues(c, h);
  EXPECT_THAT(found, Contains("all wrong rows, and no right ones, are of head 2"));
  EXPECT_THAT(found, Each(Not(HasSubstr("logits times"))));
}

/// The keys behind `end` of each sequence are lost; the mask is right.
HostOutputs without_keys_behind(const Case& c, int (*end)(int)) {
  return computed_by({.sees = [end](int i, int j, SeqLen s) { return j <= i + s.k - s.q && j < end(s.k); }},
                     c);
}

/// The causes that the clues name.
std::vector<std::string> causes(const Case& c, const HostOutputs& outputs) {
  std::vector<std::string> out;
  for (const std::string& clue : clues(c, outputs)) {
    if (clue.starts_with("looks like: ")) out.push_back(clue);
  }
  return out;
}

TEST(Clues, LostLastKeysAreNamedUnderACausalMaskToo) {
  Case c = case_of(true);
  c.params.seqs = {{5, 25}, {7, 41}, {0, 5}, {20, 58}, {3, 48}};
  EXPECT_THAT(
      causes(c, without_keys_behind(c, [](int k) { return k / 16 * 16; })),
      ElementsAre("looks like: keys behind the last whole page or tile of 16 are left out (all 64 wrong "
                  "rows tried match this mistake)"));
  EXPECT_THAT(
      causes(c, without_keys_behind(c, [](int k) { return k - 1; })),
      ElementsAre("looks like: no query sees the last key of its sequence; other keys are masked as they "
                  "should be (all 16 wrong rows tried match this mistake)"));
  c.params.seqs = {{1, 25}, {1, 41}, {1, 58}};
  EXPECT_THAT(causes(c, without_keys_behind(c, [](int k) { return k - 1; })),
              ElementsAre(HasSubstr("the causal mask hides one key too many")))
      << "the last key is the diagonal";
  c.params.kv = KvSource::kPacked;
  c.params.seqs = {{5, 70}, {9, 100}};
  EXPECT_THAT(causes(c, without_keys_behind(c, [](int k) { return k / 64 * 64; })),
              ElementsAre(StartsWith("looks like: keys behind the last whole tile of 64 are left out")));
}

TEST(Clues, ARareLengthTellsMistakesApart) {
  Case c = case_of(true);
  c.params.seqs.assign(60, {2, 17});
  c.params.seqs.push_back({2, 30});  // behind the rows that an even spread would try
  const auto drop_last = [&] { return without_keys_behind(c, [](int k) { return k - 1; }); };
  EXPECT_THAT(causes(c, drop_last()),
              ElementsAre(StartsWith("looks like: no query sees the last key of its sequence")));
  EXPECT_THAT(causes(c, without_keys_behind(c, [](int k) { return k / 16 * 16; })),
              ElementsAre(StartsWith("looks like: keys behind the last whole page or tile of 16")));
  EXPECT_THAT(clues(c, drop_last()), Each(Not(HasSubstr("told apart"))));
  c.params.seqs.pop_back();
  EXPECT_THAT(causes(c, drop_last()),
              ElementsAre(StartsWith("looks like: no query sees the last key of its sequence"),
                          StartsWith("looks like: keys behind the last whole page or tile of 16"),
                          StartsWith("looks like: the first key of each page or tile of 16 but the first")));
  EXPECT_THAT(clues(c, drop_last()),
              Contains(StartsWith("these 3 mistakes cannot be told apart on these rows")));
  const auto squared = [](double x) { return x / 32; };
  EXPECT_THAT(
      clues(case_of(true), computed_by({.score = squared}, case_of(true))),
      Contains(
          "these 2 mistakes cannot be told apart on these rows; a case with another softmax_scale may tell"));
}

TEST(Clues, OneWrongRowIsSingular) {
  Case c = case_of(false);
  c.params.num_heads_q = c.params.num_heads_kv = 1;
  c.params.seqs = {{1, 17}, {1, 16}};
  const CaseInputs inputs(c, kNoneStored);
  reference::Problem wrong = problem_of(c);
  wrong.k_ends = {16, 16};
  const auto found = clues(c, outputs_of(c, wrong, inputs));
  EXPECT_THAT(found, Contains(StartsWith("1 of 2 rows looked at is wrong, in O and LSE")));
  EXPECT_THAT(
      found, Contains("looks like: keys behind the last whole page or tile of 16 are left out (the wrong row "
                      "tried matches this mistake)"));
}

TEST(Clues, TheTraitThatTellsMostIsNamed) {
  using IntTrait = Trait<int>;
  std::vector<int> numbers(60);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::function<bool(const int&)> wrong = [](const int& n) { return n >= 40 && n % 2 == 0; };
  const IntTrait large{"are large", [](const int& n) { return n >= 38; }};
  const IntTrait even{"are even", [](const int& n) { return n % 2 == 0; }};
  const IntTrait some{"are 50", [](const int& n) { return n == 50; }};
  const IntTrait both{"are large and even", [](const int& n) { return n >= 38 && n % 2 == 0; }};
  const auto told = [&](const std::vector<IntTrait>& traits) {
    return telling_trait<int>(traits, numbers, "numbers", wrong);
  };
  EXPECT_EQ(told({some, even, both, large}), "all wrong numbers, and 1 of 50 right ones, are large and even");
  EXPECT_EQ(told({some, even}), "") << "not all wrong ones; too many right ones";
}

TEST(Clues, NoiseLooksLikeNothing) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (int64_t i = 0; i < cost_of(c.params).total_q * 4 * 32; ++i)
    store_float(c.params.dtype, h.out.data(), i,
                static_cast<float>(std::sin(0.7 * static_cast<double>(i * i % 1001))));
  const auto found = clues(c, h);
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found[0], HasSubstr("64 of 64 rows looked at are wrong, in O alone; their LSE is right"));
  EXPECT_THAT(found, Each(Not(HasSubstr("looks like"))));
}

TEST(Clues, ZerosMatchNoMistakeThatLeavesNoKeys) {
  const Case c = case_of(false);  // a kernel that leaves out the keys behind whole tiles of 64 sees none
  HostOutputs h = right_outputs(c);
  std::fill(h.out.begin(), h.out.end(), 0);
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("left out")))) << "the LSE says that keys were seen";
  std::fill(h.lse.begin(), h.lse.end(), -INFINITY);
  EXPECT_THAT(clues(c, h), Contains(HasSubstr("left out"))) << "so does it that none was";
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("(total_q, Hq)")))) << "a constant has no order";
  h.no_lse = true;
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("left out"))));
  h.no_lse = false;
  std::fill(h.lse.begin(), h.lse.end(), 0.0f);
  EXPECT_THAT(clues(c, h), Contains(StartsWith("O and LSE are 0 in all wrong rows: perhaps not computed")));
}

TEST(Clues, ScoresOfFewDigitsAreNoMissingRescale) {
  const auto digits = [](double x) {  // 8 bits, as bf16 has them
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    return std::ldexp(std::round(fraction * 256) / 256, exponent);
  };
  Case c = case_of(true);
  c.params.seqs = {{60, 200}, {1, 33}};
  const auto found =
      clues(c, computed_by({.text = "", .score = [&](double x) { return digits(x / std::sqrt(32.0)); }}, c));
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(found, Each(Not(HasSubstr("rescaled when"))));
  EXPECT_THAT(found, Contains(StartsWith(
                         "looks like: scores are rounded to bf16 (checked by rounding it in the reference")));
  EXPECT_THAT(found[0], Not(HasSubstr("perhaps")));
  EXPECT_THAT(found, Each(Not(HasSubstr("but for a factor"))));
}

/// Rows whose O is right, as that of one that carries a row, and whose LSE tells that scores were rounded.
TEST(Clues, RoundedScoresThatOnlyTheLseShows) {
  Case c = case_of(true);
  c.params.seqs = {{60, 200}};
  const HostOutputs rounded = computed_by({.text = "",
                                           .score =
                                               [](double x) {
                                                 return static_cast<double>(bf16_to_float(
                                                     float_to_bf16(static_cast<float>(x / std::sqrt(32.0)))));
                                               }},
                                          c);
  HostOutputs h = right_outputs(c);
  h.lse = rounded.lse;
  const auto found = clues(c, h);
  EXPECT_THAT(found.at(0), AllOf(HasSubstr("in the LSE alone; their O is right"), Not(HasSubstr("weights"))));
  EXPECT_THAT(found, Contains(StartsWith("looks like: scores are rounded to bf16")));
}

TEST(Clues, RoundedPAndQueriesAreNamed) {
  Case c = case_of(false);
  c.params.dtype = DType::kFp32;
  c.params.seqs = {{40, 60}};
  const CaseInputs inputs(c, kNoneStored);
  const auto digits = [](double x) {
    return static_cast<double>(bf16_to_float(float_to_bf16(static_cast<float>(x))));
  };
  const Misread rounded(problem_of(c), inputs,
                        {.change = [&](Tensor of, int, int, int, std::span<double> row) {
                          for (double& x : row) x = of == Tensor::kQ ? digits(x) : x;
                        }});
  EXPECT_THAT(clues(c, outputs_of(c, problem_of(c), rounded)),
              Contains(StartsWith("looks like: q is rounded to bf16")));
  reference::Problem with_p = problem_of(c);
  with_p.probs = true;
  HostOutputs h = right_outputs(c);
  std::vector<double> v(60 * 32);
  reference::attend(with_p, inputs, reference::all_rows(with_p), 1, [&](const reference::RowBlock& b) {
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      const reference::RowId id = b.rows[r];
      inputs.load_v(0, id.head / 2, 0, 60, v.data());
      const double top = *std::max_element(b.probs.begin() + static_cast<std::ptrdiff_t>(r * 60),
                                           b.probs.begin() + static_cast<std::ptrdiff_t>(r * 60 + 60));
      for (std::size_t ch = 0; ch < 32; ++ch) {
        double o = 0;
        for (std::size_t j = 0; j < 60; ++j) o += digits(b.probs[r * 60 + j] / top) * top * v[j * 32 + ch];
        store_float(DType::kFp32, h.out.data(),
                    (token_of(c, id) * 4 + id.head) * 32 + static_cast<int64_t>(ch), static_cast<float>(o));
      }
    }
  });
  const auto found = clues(c, h);
  EXPECT_THAT(found, Contains(StartsWith("looks like: P is rounded to bf16")));
  EXPECT_THAT(found, Each(Not(HasSubstr("scores are rounded"))));
}

TEST(Clues, NumbersThatAreFlushed) {
  Case c = case_of(true);
  c.params.dtype = DType::kFp16;
  HostOutputs h = right_outputs(c);
  for (int64_t i = 0; i < cost_of(c.params).total_q * 4 * 32; ++i)
    if (std::abs(load_float(DType::kFp16, h.out.data(), i)) < 0x1p-6f)
      store_float(DType::kFp16, h.out.data(), i, 0);
  const auto found = clues(c, h);
  EXPECT_THAT(found,
              Contains(StartsWith("all wrong elements of O are 0, and all elements of more than 0.015")));
  EXPECT_THAT(found.at(0), Not(HasSubstr("V row")));
}

TEST(Clues, HeadsThatAreOneRowEachAreNoTrait) {
  Case c = case_of(true);
  c.params.num_heads_q = 32;
  c.params.seqs = {{1, 200}};
  HostOutputs h = right_outputs(c);
  for (const int head : {8, 13, 16, 17, 24, 25, 26, 27, 31})
    for (int ch = 0; ch < 32; ++ch) store_float(c.params.dtype, h.out.data(), head * 32 + ch, 3.0f);
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("are of head"))));
}

TEST(Clues, RowsThatChangedPlaces) {
  const Case c = case_of(true);
  const auto swapped = [](reference::RowId id) { return reference::RowId{id.seq, id.pos, id.head ^ 2}; };
  EXPECT_THAT(
      clues(c, outputs_of(c, problem_of(c), CaseInputs(c, kNoneStored), swapped)),
      Contains(StartsWith(
          "looks like: rows change places: seq 0 pos 0 head 0 has what belongs to seq 0 pos 0 head 2")));
}

TEST(Clues, OneChannelIsNearThatOfAnotherRowByChance) {
  Case c = case_of(true);
  c.params.head_dim = c.params.head_dim_v = 1;
  c.params.seqs = {{90, 99}, {100, 130}};
  HostOutputs h = right_outputs(c);
  for (int64_t row = 0; row < cost_of(c.params).total_q * 4; ++row) {
    const float o = load_float(c.params.dtype, h.out.data(), row);
    store_float(c.params.dtype, h.out.data(), row, o * (0.5f + 0.07f * static_cast<float>(row * 5 % 11)));
  }
  EXPECT_THAT(clues(c, h), testing::Each(Not(HasSubstr("change places"))));
}

TEST(Clues, AFactorOfEachRow) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (int64_t row = 0; row < cost_of(c.params).total_q * 4; ++row) {
    for (int64_t i = 32 * row; i < 32 * row + 32; ++i)
      store_float(c.params.dtype, h.out.data(), i,
                  load_float(c.params.dtype, h.out.data(), i) * (2 + static_cast<float>(row % 3)));
  }
  EXPECT_THAT(clues(c, h), Contains(HasSubstr("O is right but for a factor of each row (1.999 to 4.004)")));
}

}  // namespace
}  // namespace attnbench
