// What the clues say of the wrong rows themselves: which they are, how wrong, and where their NaN comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <utility>

#include "harness/judge/misread.h"
#include "harness/judge/mistakes.h"
#include "harness/judge/row_pattern.h"
#include "harness/tensors/descales.h"
#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

using test::case_of;
using test::clues;
using test::computed_by;
using test::kNoneStored;
using test::outputs_of;
using test::right_outputs;
using test::token_of;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(RowClues, HeadsAndChannelsOfTheWrongRows) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (int64_t token = 0; token < cost_of(c.params).total_q; ++token) {
    for (int ch = 16; ch < 32; ++ch)
      store_float(c.params.dtype, h.out.data(), (token * 4 + 2) * 32 + ch, 3.0f);
  }
  EXPECT_THAT(clues(c, h), ElementsAre(AllOf(StartsWith("16 of 64 rows looked at are wrong, in O alone"),
                                             HasSubstr("; only channels 16 to 31 of 32")),
                                       "all wrong rows, and no right ones, are of head 2"));
}

TEST(RowClues, HeadsThatReadOtherKvHeadsByAnyRule) {
  const Case c = case_of(true);
  const CaseInputs inputs(c, kNoneStored);
  HostOutputs h = right_outputs(c);
  const int64_t total = cost_of(c.params).total_q;
  const auto reads = [&](int head, int kv_head) {
    const auto s = reads_kv_head(problem_of(c), inputs, kv_head);
    const HostOutputs wrong = outputs_of(c, s.problem, *s.inputs);
    for (int64_t token = 0; token < total; ++token) {
      h.lse[static_cast<std::size_t>(head * total + token)] =
          wrong.lse[static_cast<std::size_t>(head * total + token)];
      std::copy_n(wrong.out.begin() + (token * 4 + head) * 64, 64, h.out.begin() + (token * 4 + head) * 64);
    }
  };
  reads(0, 1);
  reads(3, 0);
  EXPECT_THAT(clues(c, h),
              Contains(StartsWith("looks like: query heads read other KV heads than h / 2: head 0 reads 1, "
                                  "head 3 reads 0 (all 32 wrong rows tried match this mistake)")));
}

TEST(RowClues, ARangeOfNearlyAllChannelsIsNotNamed) {
  const Case c = case_of(true);
  const auto wrong_from = [&](int first) {
    HostOutputs h = right_outputs(c);
    for (int ch = first; ch < 32; ++ch) store_float(c.params.dtype, h.out.data(), ch, 3.0f);
    return clues(c, h).at(0);
  };
  EXPECT_THAT(wrong_from(3), Not(HasSubstr("channel")));
  EXPECT_THAT(wrong_from(7), Not(HasSubstr("channel")));
  EXPECT_THAT(wrong_from(8), HasSubstr("; only channels 8 to 31 of 32")) << "a quarter is right";
}

TEST(RowClues, TheTypicalErrorOfTheWrongRows) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  const auto scale_row = [&](int64_t row, float factor) {
    for (int64_t i = 32 * row; i < 32 * row + 32; ++i)
      store_float(c.params.dtype, h.out.data(), i, load_float(c.params.dtype, h.out.data(), i) * factor);
  };
  scale_row(0, 1.5f);
  EXPECT_THAT(clues(c, h).at(0), HasSubstr("; typical error of this row in O: 50 %"));
  scale_row(1, 2.0f);
  scale_row(2, 65);
  EXPECT_THAT(clues(c, h).at(0), HasSubstr("; typical error of these rows in O: 100 %")) << "the median";
}

TEST(RowClues, FloatsThatWereConvertedToTheIntegersThatHoldTheBits) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    Case c = case_of(true);
    c.params.dtype = dtype;
    HostOutputs h = right_outputs(c);
    const auto elements = static_cast<int64_t>(h.out.size() / 2);
    bool ones = false;
    for (int64_t i = 0; i < elements; ++i) {
      const auto bits = static_cast<int16_t>(load_float(dtype, h.out.data(), i));
      ones = ones || bits != 0;
      std::memcpy(h.out.data() + 2 * i, &bits, 2);
    }
    ASSERT_TRUE(ones) << "some results are 1 and more";
    EXPECT_THAT(clues(c, h),
                Contains(HasSubstr("looks like: results converted to integers, where the bits of " +
                                   std::string(dtype_name(dtype)) + " are required")));
    std::fill(h.out.begin(), h.out.end(), 0);
    EXPECT_THAT(clues(c, h), Contains(std::string("O is 0 in all wrong rows")));
  }
}

TEST(RowClues, AnErrorAsSmallAsThatOfRoundingIsCalledSo) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  const auto scaled = [&](float factor) {
    HostOutputs other = h;
    const auto elements = static_cast<int64_t>(h.out.size() / dtype_size(c.params.dtype));
    for (int64_t i = 0; i < elements; ++i)
      store_float(c.params.dtype, other.out.data(), i, load_float(c.params.dtype, h.out.data(), i) * factor);
    return clues(c, other).at(0);
  };
  EXPECT_THAT(scaled(1.5f), AllOf(HasSubstr("their LSE is right; typical"), Not(HasSubstr("p_type"))));
  EXPECT_THAT(scaled(0.992f), HasSubstr("their LSE is right, by as little as rounding does: perhaps"));
}

TEST(RowClues, RowsThatReadTheEndOfAPage) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (const reference::RowId& id : reference::all_rows(problem_of(c))) {
    const SeqLen s = c.params.seqs[static_cast<std::size_t>(id.seq)];
    if (id.pos != s.q - 1 || s.k % c.params.block_size == 0) continue;
    for (int ch = 0; ch < 32; ++ch)
      store_float(c.params.dtype, h.out.data(), (token_of(c, id) * 4 + id.head) * 32 + ch, NAN);
  }
  EXPECT_THAT(
      clues(c, h),
      ElementsAre(
          AllOf(StartsWith("12 of 64 rows"), HasSubstr("; all are NaN")),
          "all wrong rows, and no right ones, see the last key of a sequence whose last page is not full"));
}

TEST(RowClues, ExponentialsOutOfRangeAreNoMemory) {
  for (const DType type : {DType::kBf16, DType::kFp32}) {
    Case c = case_of(true);
    c.params.dtype = type;
    HostOutputs h = right_outputs(c);
    const int64_t total = cost_of(c.params).total_q;
    const auto break_head = [&](int head, float lse) {
      for (int64_t token = 0; token < total; ++token) {
        h.lse[static_cast<std::size_t>(head * total + token)] = lse;
        for (int ch = 0; ch < 32; ++ch) store_float(type, h.out.data(), (token * 4 + head) * 32 + ch, NAN);
      }
    };
    break_head(1, -INFINITY);
    EXPECT_THAT(
        clues(c, h),
        Contains(
            "their weights sum to 0: perhaps exp underflows where the row's greatest score is not subtracted "
            "first, or no key is seen"));
    break_head(2, INFINITY);
    EXPECT_THAT(
        clues(c, h),
        Contains("the LSE of 16 of them is inf: perhaps exp overflows where the row's greatest score is "
                 "not subtracted first"));
    break_head(3, NAN);
    EXPECT_THAT(clues(c, h), Not(Contains(HasSubstr("exp overflows")))) << "NaN was read, too";
  }
}

TEST(RowClues, RowsWithoutKeysThatNobodyWroteAreNoIntegers) {
  Case c = case_of(true);
  c.params.seqs = {{5, 2}, {7, 33}};  // three rows of each head see no key
  c.params.allow_short_kv = true;
  HostOutputs h = right_outputs(c);
  for (int64_t token = 0; token < 3; ++token) {
    for (int head = 0; head < 4; ++head) {
      h.lse[static_cast<std::size_t>(head * 12 + token)] = std::bit_cast<float>(~uint32_t{0});
      std::fill_n(h.out.begin() + (token * 4 + head) * 64, 64, static_cast<unsigned char>(0xff));
    }
  }
  EXPECT_THAT(clues(c, h), AllOf(Contains(HasSubstr("was perhaps not written when the launch ended")),
                                 Not(Contains(HasSubstr("integers")))));
}

TEST(RowClues, RowsThatSeeAKeyAreNamedBeforeTheirLengths) {
  Case c = case_of(false);
  c.params.seqs = {{5, 9}, {3, 0}, {7, 33}};
  c.params.allow_short_kv = true;
  HostOutputs h = right_outputs(c);
  for (std::size_t i = 0; i < h.out.size(); i += 2)
    h.out[i] ^= 1 << 5;  // zeros stay so small that they are right
  for (int64_t row = 5 * 4 * 32; row < 8 * 4 * 32; ++row)
    store_float(c.params.dtype, h.out.data(), row, 0.0f);
  EXPECT_THAT(clues(c, h), Contains(StartsWith("all wrong rows, and no right ones, see a key; what fits as "
                                               "well: are of sequences with more keys than queries")));
}

TEST(RowClues, RowsOfKeysFoundByTheOffsetsOfQueries) {
  Case c = case_of(true);
  c.params.kv = KvSource::kPacked;
  const CaseInputs inputs(c, kNoneStored);
  const std::string text = "K and V of sequence b are read from row cu_seqlens_q[b] on, not cu_seqlens_k[b]";
  int named = 0;
  for (const auto& s : mistakes_of(c, problem_of(c), inputs)) {
    if (s.text != text) continue;
    ++named;
    EXPECT_THAT(clues(c, outputs_of(c, s.problem, *s.inputs)), Contains(StartsWith("looks like: " + text)));
  }
  EXPECT_EQ(named, 1);
}

TEST(RowClues, AScaleThatTwoMistakesGiveHasBothNames) {
  const Case c = case_of(false);
  reference::Problem wrong = problem_of(c);
  wrong.softmax_scale = 1.0 / c.params.head_dim;
  EXPECT_THAT(clues(c, outputs_of(c, wrong, CaseInputs(c, kNoneStored))),
              AllOf(Contains(StartsWith("looks like: 1/head_dim is applied for softmax_scale")),
                    Contains(StartsWith("looks like: softmax_scale is applied twice"))));
}

TEST(RowClues, NaNIsNotSaidToBeReadWithoutAnExperiment) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (int ch = 0; ch < 32; ++ch) store_float(c.params.dtype, h.out.data(), ch, NAN);
  h.lse[0] = NAN;
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("must not be read"))));
  h.lse[0] = std::bit_cast<float>(~uint32_t{0});
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("must not be read"))));
}

TEST(RowClues, RowsThatSeeNoKeyAndAreDividedByZero) {
  Case c = case_of(true);
  c.params.seqs = {{9, 6}, {7, 33}};  // the first three queries see no key
  const auto with_nan_in = [&](std::initializer_list<int> tokens, bool lse_too) {
    HostOutputs h = right_outputs(c);
    for (const int token : tokens) {
      for (int i = 0; i < 4 * 32; ++i) store_float(c.params.dtype, h.out.data(), token * 4 * 32 + i, NAN);
      for (int head = 0; lse_too && head < 4; ++head) h.lse[static_cast<std::size_t>(head * 16 + token)] = 1;
    }
    return clues(c, h);
  };
  EXPECT_THAT(
      with_nan_in({0, 1, 2}, false),
      ElementsAre(
          "12 of 64 rows looked at are wrong, in O alone; they see no key, so O must be 0; all are NaN, "
          "as after a division by a softmax denominator of 0",
          "all wrong rows, and no right ones, see no key"));
  EXPECT_THAT(with_nan_in({0, 1, 2}, true).at(0),
              AllOf(HasSubstr("in O and LSE; they see no key"), Not(HasSubstr("division"))));
  EXPECT_THAT(with_nan_in({0, 12}, false).at(0),
              AllOf(HasSubstr("in O alone; their LSE is right; 4 see no key"), Not(HasSubstr("division"))));
}

TEST(RowClues, ANumberOfKeysIsNamedOnlyWhereItIsNoCoincidence) {
  Case c = case_of(true);
  c.params.kv = KvSource::kPacked;
  c.params.seqs = {{90, 290}, {11, 300}};
  const auto wrong_in = [&](const std::vector<reference::RowId>& ids) {
    HostOutputs h = right_outputs(c);
    for (const reference::RowId& id : ids)
      for (int ch = 0; ch < 32; ++ch)
        store_float(c.params.dtype, h.out.data(), (token_of(c, id) * 4 + id.head) * 32 + ch, 3.0f);
    return clues(c, h);
  };
  // Three heads of the token that sees the fewest keys: one token of 101.
  const auto one_token = wrong_in({{0, 0, 0}, {0, 0, 1}, {0, 0, 3}});
  EXPECT_THAT(one_token.at(0), StartsWith("3 of 404 rows looked at are wrong"));
  EXPECT_THAT(one_token, Each(Not(HasSubstr("keys or fewer"))));
  std::vector<reference::RowId> many;
  for (int pos = 0; pos < 12; ++pos)
    for (int head = 0; head < 4; ++head) many.push_back({0, pos, head});
  EXPECT_THAT(wrong_in(many), Contains("all wrong rows, and no right ones, see 212 keys or fewer"));
}

TEST(RowClues, WrongRowsThatAreAllLongLeadToTheStepBetweenBlocks) {
  Case c = case_of(true);
  c.params.kv = KvSource::kPacked;
  c.params.seqs = {{100, 100}};
  HostOutputs h = right_outputs(c);
  for (int pos = 64; pos < 100; ++pos) {  // one head of four: those whose maximum grows, for instance
    for (int ch = 0; ch < 32; ++ch)
      store_float(c.params.dtype, h.out.data(), (token_of(c, {0, pos, 0}) * 4 + pos % 4) * 32 + ch, 3.0f);
  }
  EXPECT_THAT(clues(c, h),
              Contains(StartsWith("all wrong rows see 65 keys or more, and rows with fewer keys are right")));
}

/// Clues about a packed, causal case in which head 1 is wrong where `wrong(pos, keys that the query sees)`.
std::vector<std::string> clues_of_wrong(std::vector<SeqLen> seqs,
                                        const std::function<bool(int, int)>& wrong) {
  Case c = case_of(true);
  c.params.kv = KvSource::kPacked;
  c.params.seqs = std::move(seqs);
  HostOutputs h = right_outputs(c);
  for (const reference::RowId& id : reference::all_rows(problem_of(c))) {
    const SeqLen len = c.params.seqs[static_cast<std::size_t>(id.seq)];
    if (id.head != 1 || !wrong(id.pos, id.pos + len.k - len.q + 1)) continue;
    for (int ch = 0; ch < 32; ++ch)
      store_float(c.params.dtype, h.out.data(), (token_of(c, id) * 4 + 1) * 32 + ch, 3.0f);
  }
  return clues(c, h);
}

TEST(RowClues, QueriesOfATileAndNumbersOfKeysModuloATile) {
  EXPECT_THAT(
      clues_of_wrong({{256, 256}}, [](int pos, int) { return pos % 64 >= 60; }),
      Contains(
          "all wrong rows, and 48 of 1008 right ones, are query 60 to 63 of every 64; what fits as well: "
          "see a number of keys that is 0, 61 to 63 modulo 64"));
  EXPECT_THAT(
      clues_of_wrong({{256, 256}}, [](int pos, int) { return pos % 64 >= 60 && pos >= 128; }),
      Contains(AllOf(StartsWith("all wrong rows, and "), HasSubstr("are query 60 to 63 of every 64"))));
  EXPECT_THAT(clues_of_wrong({{200, 245}, {100, 150}}, [](int, int keys) { return keys % 16 == 1; }),
              Contains(HasSubstr("see a number of keys that is 1 modulo 16")));
  EXPECT_THAT(clues_of_wrong(std::vector<SeqLen>(8, SeqLen{40, 40}),
                             [](int pos, int) { return pos == 24 || pos == 25; }),
              Each(Not(HasSubstr("of every 32"))))
      << "a period that comes once";
}

TEST(RowClues, PlacesOfWrongRowsThatHaveNothingElseInCommon) {
  const auto some = [](int pos, int) { return pos == 13 || pos == 57 || (pos >= 100 && pos < 103); };
  const auto found = clues_of_wrong({{256, 256}}, some);
  EXPECT_THAT(found, Contains("the wrong rows are of pos 13, 57, 100 to 102 of seq 0"));
  EXPECT_THAT(found, Each(Not(HasSubstr("modulo")))) << "five tokens fit some residues by chance";
  EXPECT_THAT(found, Each(Not(HasSubstr("one block of keys to the next")))) << "most longer rows are right";
}

TEST(RowClues, RowsThatWereNeverWritten) {
  const Case c = case_of(false);
  const auto first_three = [](reference::RowId id) {
    return reference::RowId{id.seq, std::min(id.pos, 2), id.head};
  };
  EXPECT_THAT(clues(c, outputs_of(c, problem_of(c), CaseInputs(c, kNoneStored), first_three)),
              Contains(StartsWith(
                  "the LSE of 24 of them, the first of seq 0 pos 3 head 0, was perhaps not written when the "
                  "launch ended")));
}

TEST(RowClues, Ranges) {
  EXPECT_EQ(ranges_text(std::vector{3}), "3");
  EXPECT_EQ(ranges_text(std::vector{1, 2, 4, 5, 6, 9}), "1, 2, 4 to 6, 9");
}

TEST(RowClues, LseOfBaseTwo) {
  const Case c = case_of(true);
  HostOutputs h = right_outputs(c);
  for (float& lse : h.lse) lse *= std::numbers::log2e_v<float>;
  EXPECT_THAT(clues(c, h),
              ElementsAre("64 of 64 rows looked at are wrong, in the LSE alone; their O is right",
                          "looks like: the LSE is of base 2, where base e is required"));
  Case base2 = c;
  base2.params.lse_base2 = true;
  for (float& lse : h.lse) lse *= std::numbers::ln2_v<float> * std::numbers::ln2_v<float>;
  EXPECT_THAT(clues(base2, h),
              Contains(std::string("looks like: the LSE is of base e, where base 2 is required")));
}

TEST(RowClues, DropoutThatIsNotRescaled) {
  Case c = case_of(true);
  c.params.dropout = 0.3;
  HostOutputs h = right_outputs(c);
  for (int64_t i = 0; i < std::ssize(h.out) / 2; ++i)
    store_float(c.params.dtype, h.out.data(), i, 0.7f * load_float(c.params.dtype, h.out.data(), i));
  EXPECT_THAT(clues(c, h), Contains(HasSubstr("not divided by 1 - dropout")));
}

TEST(RowClues, ARightLseSaysThatScoresAreRight) {
  const auto backwards = [](int j, int, SeqLen s) {
    const int tile = j / 8 * 8;
    return tile + (std::min(tile + 8, s.k) - 1 - j);
  };
  EXPECT_THAT(
      clues(case_of(true), computed_by({.v_token = backwards}, case_of(true))).at(0),
      HasSubstr(
          "their LSE is right, so the scores and their sums are right: perhaps P meets other values of V"));
}

TEST(RowClues, LseInTheOtherOrder) {
  const Case c = case_of(true);
  const HostOutputs right = right_outputs(c);
  HostOutputs h = right;
  const std::size_t heads = 4, tokens = right.lse.size() / heads;
  for (std::size_t i = 0; i < right.lse.size(); ++i) h.lse[i % tokens * heads + i / tokens] = right.lse[i];
  EXPECT_THAT(clues(c, h), Contains(StartsWith("looks like: the LSE is written as (total_q, Hq), where")));
  Case token_major = c;
  token_major.params.out_lse_token_major = true;
  HostOutputs other = right;
  for (std::size_t i = 0; i < right.lse.size(); ++i) other.lse[i % heads * tokens + i / heads] = right.lse[i];
  EXPECT_THAT(clues(token_major, other),
              Contains(std::string(
                  "looks like: the LSE is written as (Hq, total_q), where (total_q, Hq) is required")));
  h.lse[1] += 1;  // one value that is wrong in any order
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("(total_q, Hq)"))));
}

TEST(RowClues, WhatCountsFromTheQueryIndexFromATileOrFromSlots) {
  const auto found = [](const Case& c, const std::function<void(reference::Problem&)>& change) {
    reference::Problem wrong = problem_of(c);
    change(wrong);
    return clues(c, outputs_of(c, wrong, CaseInputs(c, kNoneStored)));
  };
  Case c = case_of(true);
  c.params.window_left = 2;
  EXPECT_THAT(found(c,
                    [](reference::Problem& x) {
                      x.window_left = -1;
                      x.sees = [](int, int pos, int, int64_t key) { return key >= pos - 2; };
                    }),
              Contains(StartsWith("looks like: window_left counts from query i, not from its diagonal")));
  c = case_of(true);
  c.params.alibi = Alibi::kPerHead;
  EXPECT_THAT(found(c,
                    [p = c.params](reference::Problem& x) {
                      x.causal = false;
                      x.top_left = true;
                      x.sees = [p](int seq, int pos, int, int64_t key) {
                        const SeqLen& s = p.seqs[static_cast<std::size_t>(seq)];
                        return key <= pos + s.k - s.q;
                      };
                    }),
              Contains(StartsWith("looks like: ALiBi takes the distance of key j and query i for |i - j|")));
  c = case_of(true);
  c.params.kv = KvSource::kPacked;
  c.params.gap_tokens = 3;
  EXPECT_THAT(found(c,
                    [](reference::Problem& x) {
                      x.k_ends = x.k_lens;
                      for (int& k : x.k_lens) k += 3;
                    }),
              Contains(StartsWith("looks like: sequences are taken to fill their slots")));
  c = case_of(true);
  c.params.seqs = {{40, 70}};
  EXPECT_THAT(found(c,
                    [](reference::Problem& x) {
                      x.causal = false;
                      x.sees = [](int, int pos, int, int64_t key) {
                        return key <= std::min(pos / 16 * 16 + 15, 39) + 30;
                      };
                    }),
              Contains(StartsWith("looks like: the causal mask is that of the last query of a tile of 16")));
}

TEST(RowClues, DescalesOfTheOtherTensor) {
  Case c = case_of(true);
  c.params.kv_dtype = KvDType::kE4m3;
  const CaseInputs inputs(c, kNoneStored);
  const Misread other(
      problem_of(c), inputs, {.change = [&c](Tensor of, int seq, int pos, int head, std::span<double> row) {
        for (std::size_t i = 0; of == Tensor::kV && i < row.size(); ++i) {
          row[i] *= static_cast<double>(descale_of(c, Tensor::kK, seq, pos, head, static_cast<int>(i))) /
                    static_cast<double>(descale_of(c, Tensor::kV, seq, pos, head, static_cast<int>(i)));
        }
      }});
  EXPECT_THAT(clues(c, outputs_of(c, problem_of(c), other)),
              Contains(StartsWith("looks like: V has the descale of K")));
}

TEST(RowClues, ScoresBeyondATypeAreNoneThatWereRoundedToIt) {
  Case c = case_of(true);
  c.params.head_dim = 128;
  c.params.data = Profile::kHuge;  // some scores are below -65504: all keys of such a row are lost in fp16
  HostOutputs h = right_outputs(c);
  for (int64_t i = 0; i < cost_of(c.params).total_q * 4 * 128; ++i)
    store_float(c.params.dtype, h.out.data(), i, 2 * load_float(c.params.dtype, h.out.data(), i));
  EXPECT_THAT(clues(c, h), Each(Not(HasSubstr("rounded to"))));
}

}  // namespace
}  // namespace attnbench
