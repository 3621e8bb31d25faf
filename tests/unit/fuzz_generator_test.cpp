// Drawn cases are legal, repeatable and small, and include the corner cases that fuzzing is for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/cost.h"
#include "harness/config/keys.h"
#include "harness/fuzz/batches.h"
#include "harness/fuzz/corners.h"
#include "harness/fuzz/generator.h"

namespace attnbench {
namespace {

std::vector<FuzzCase> drawn(Op op, uint64_t seed, int count) {
  Generator generator(op, seed);
  std::vector<FuzzCase> out;
  for (int i = 0; i < count; ++i) out.push_back(generator.next());
  return out;
}

int32_t longest(const FuzzCase& c) {
  int32_t k = 0;
  for (const SeqLen& s : c.item.params.seqs) k = std::max(k, s.k);
  return k;
}

TEST(FuzzGenerator, DrawsWhatRunReadsAsTheSameCase) {
  for (const Op op : kOps) {
    for (const FuzzCase& c : drawn(op, 11, 400)) {
      const std::string mapping = mapping_of(c.draft);
      SCOPED_TRACE(mapping);
      const Expansion e = expand(parse_inline_case(mapping, {}, c.draft.seed));
      ASSERT_EQ(e.cases.size(), 1u);
      EXPECT_EQ(e.cases[0].id, c.item.id);
      CaseParams read = e.cases[0].params, drawn_params = c.item.params;
      if (read.page_layout == PageLayout::kRepeated) {  // the same blocks, drawn twice
        ASSERT_TRUE(read.blocks && drawn_params.blocks);
        EXPECT_EQ(read.blocks->ids(), drawn_params.blocks->ids());
        read.blocks = drawn_params.blocks;
      }
      EXPECT_EQ(read, drawn_params);
      EXPECT_EQ(c.item.params.op, op);
      EXPECT_EQ(c.item.seed, c.draft.seed);
      // The repro line gives the same case.
      const Expansion again = expand(parse_inline_case(case_yaml(c.item.params), {}, c.draft.seed));
      ASSERT_EQ(again.cases.size(), 1u);
      EXPECT_EQ(again.cases[0].id, c.item.id);
    }
  }
}

TEST(FuzzGenerator, ASeedDrawsTheSameCasesAgain) {
  for (const Op op : kOps) {
    const auto a = drawn(op, 5, 100), b = drawn(op, 5, 100), c = drawn(op, 6, 100);
    int other = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].draft, b[i].draft);
      other += a[i].item.id != c[i].item.id;
    }
    EXPECT_GT(other, 90);
  }
}

TEST(FuzzGenerator, KeepsCasesSmall) {
  double flop = 0;
  const auto cases = drawn(Op::kAttention, 3, 1000);
  for (const FuzzCase& c : cases) {
    const CaseCost cost = cost_of(c.item.params);
    flop += cost.flop;
    EXPECT_LE(cost.flop, 1e9) << c.item.id;
    EXPECT_LE(cost.device_bytes, 1.3e8) << c.item.id;
  }
  EXPECT_LT(flop / 1000, 1e8);
  Generator small(Op::kAttention, 3, 0.01);  // less than the cost of one large block
  for (int i = 0; i < 300; ++i) EXPECT_LE(cost_of(small.next().item.params).flop, 1e7);
}

/// A key that is added to the table is drawn without a change here. A key without a schema is refused.
TEST(FuzzGenerator, SetsEveryKeyOfTheTable) {
  std::map<std::string, std::set<std::string>> met;
  for (const Op op : kOps) {
    for (const FuzzCase& c : drawn(op, 1, op == Op::kAttention ? 100000 : 12000)) {
      for (const auto& [key, value] : c.draft.values) met[key].insert(value);
    }
  }
  for (const SweepKey& key : sweep_keys()) {
    if (key.name == "op" || key.name == "batch") continue;
    if (key.name == "expect" || key.name == "bad_launch") continue;  // no result to judge
    EXPECT_TRUE(met.count(key.name)) << key.name;
    const auto words = key.schema.find("enum");
    if (words == key.schema.end()) continue;
    // All words except the default, which drafts omit, and the table of a replay.
    const std::size_t omitted = key.name == "page_layout" ? 2 : 1;
    EXPECT_GE(met[key.name].size() + omitted, words->size()) << key.name;
  }
  const SweepKey unknown = {"colour", "", {{"type", "string"}, {"pattern", "^#"}}, {}};
  EXPECT_THROW(menu_of(unknown), std::logic_error);
}

TEST(FuzzGenerator, DrawsNegativeNumbersWhereTheSchemaAllowsThem) {
  const SweepKey any = {"tilt", "", {{"type", "number"}}, {}};
  EXPECT_THAT(menu_of(any), ::testing::IsSupersetOf({"0", "20", "-0.25", "-20"}));
  const SweepKey not_zero = {"tilt", "", {{"type", "number"}, {"not", {{"const", 0}}}}, {}};
  EXPECT_THAT(menu_of(not_zero), ::testing::AllOf(::testing::Not(::testing::Contains("0")),
                                                  ::testing::IsSupersetOf({"1", "-1"})));
  const SweepKey positive = {"tilt", "", {{"type", "number"}, {"exclusiveMinimum", 0}}, {}};
  EXPECT_THAT(menu_of(positive), ::testing::Not(::testing::Contains(::testing::StartsWith("-"))));
}

TEST(FuzzGenerator, MeetsTheCornersOfLengthsAndWindows) {
  int one_less_windowed = 0, aligned = 0, odd = 0, at_length = 0, none = 0, equal = 0, long_decode = 0,
      short_kv = 0;
  for (const FuzzCase& c : drawn(Op::kAttention, 2, 5000)) {
    const CaseParams& p = c.item.params;
    const int32_t k = longest(c);
    const auto any = [&](auto&& is) { return std::any_of(p.seqs.begin(), p.seqs.end(), is); };
    const bool one_less = k > 1 && any([&](const SeqLen& s) { return s.k == k - 1 && s.q > 0; });
    one_less_windowed += one_less && p.window_left >= 0;
    aligned += p.window_left > 0 && (p.window_left + 1) % 64 == 0 && p.window_left < k;
    odd += p.window_left > 0 && p.window_left % 16 > 1 && p.window_left % 16 < 14 && p.window_left < k;
    at_length += p.window_left > 0 && any([&](const SeqLen& s) { return s.k == p.window_left + 1; });
    none += any([](const SeqLen& s) { return s.k == 0 || s.q == 0; });
    equal += p.seqs.size() > 1 && std::equal(p.seqs.begin() + 1, p.seqs.end(), p.seqs.begin());
    long_decode += k > 4096 && any([&](const SeqLen& s) { return s.k == k && s.q == 1; });
    short_kv += any([](const SeqLen& s) { return s.q > s.k && s.k > 0; });
  }
  EXPECT_GT(one_less_windowed, 60);
  EXPECT_GT(aligned, 40);
  EXPECT_GT(odd, 40);
  EXPECT_GT(at_length, 20);
  EXPECT_GT(none, 200);
  EXPECT_GT(equal, 200);
  EXPECT_GT(long_decode, 20);
  EXPECT_GT(short_kv, 40);
}

/// The form of a defect that no sweep had: a window makes a shorter sequence touch one tile more.
TEST(FuzzGenerator, DrawsWindowsThatStraddleMoreTilesInAShorterSequence) {
  constexpr int32_t kTile = 1024;
  const auto tiles = [](int32_t k, int32_t left) {
    const int32_t first = std::max(0, k - 1 - left);
    return (k - 1) / kTile - first / kTile + 1;
  };
  int met = 0;
  for (const FuzzCase& c : drawn(Op::kAttention, 4, 20000)) {
    const CaseParams& p = c.item.params;
    const int32_t k = longest(c);
    if (p.window_left < 0 || k < kTile || p.kv != KvSource::kPaged) continue;
    for (const SeqLen& s : p.seqs) {
      if (s.q == 0 || s.k == k || s.k < 1) continue;
      if (tiles(s.k, p.window_left) <= tiles(k, p.window_left)) continue;
      ++met;
      break;
    }
  }
  EXPECT_GT(met, 10);
}

TEST(FuzzGenerator, StretchesToNoLengthBelowZero) {
  Random random(6);
  for (int i = 0; i < 20000; ++i) {
    std::vector<SeqLen> seqs(4, {2, 700});
    stretch_over_units(random, seqs);
    for (const SeqLen& s : seqs) ASSERT_GE(s.k, 0);
  }
}

TEST(FuzzGenerator, LearnsWhatAKernelRefuses) {
  Generator generator(Op::kAttention, 9);
  const auto takes = [](const CaseParams& p) {
    return p.kv == KvSource::kPaged && (p.head_dim == 64 || p.head_dim == 128) && p.dtype != DType::kFp32 &&
           p.softcap == 0 && !p.probs && p.dropout == 0;
  };
  const auto share = [&](int count) {
    int taken = 0;
    for (int i = 0; i < count; ++i) {
      const FuzzCase c = generator.next();
      const bool is_taken = takes(c.item.params);
      generator.learn(c, is_taken);
      taken += is_taken;
    }
    return static_cast<double>(taken) / count;
  };
  const double before = share(50);
  share(1500);
  const double after = share(500);
  EXPECT_LT(before, 0.4);
  EXPECT_GT(after, 0.7);
}

TEST(FuzzCorners, HoldTileSizesAndTheirNeighbours) {
  const auto corners = corner_integers(0, 1025);
  for (const int64_t n : {0,   1,   15,  16,  17,  31,  32,  33,  63,   64,   65,  127,
                          128, 129, 175, 176, 177, 255, 256, 257, 1023, 1024, 1025}) {
    EXPECT_THAT(corners, ::testing::Contains(n));
  }
  EXPECT_TRUE(std::is_sorted(corners.begin(), corners.end()));
  EXPECT_EQ(corner_integers(5, 5), std::vector<int64_t>{5});
}

}  // namespace
}  // namespace attnbench
