#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "harness/cases/case.h"
#include "harness/cases/cover.h"

namespace attnbench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const auto kAlways = [](const AxisRow&) { return true; };
const auto kAllLive = [](const AxisRow&, std::size_t) { return true; };

Cover pairwise_cover(const std::vector<std::size_t>& points, const std::function<bool(const AxisRow&)>& legal,
                     const std::function<bool(const AxisRow&, std::size_t)>& live) {
  return cover_tuples({points, legal, live}, 2, 1);
}

using Pair = std::array<std::size_t, 4>;

std::set<Pair> pairs_in(const std::vector<AxisRow>& rows) {
  std::set<Pair> pairs;
  for (const AxisRow& row : rows) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) pairs.insert({a, row[a], b, row[b]});
    }
  }
  return pairs;
}

TEST(Pairwise, EveryPairMeetsInFewRows) {
  const std::vector<std::size_t> points = {4, 3, 3, 2, 5, 2, 2, 3};
  const Cover cover = pairwise_cover(points, kAlways, kAllLive);
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < points.size(); ++a) {
    for (std::size_t b = a + 1; b < points.size(); ++b) pairs += points[a] * points[b];
  }
  EXPECT_EQ(pairs_in(cover.rows).size(), pairs);
  EXPECT_EQ(cover.met, static_cast<int64_t>(pairs));
  EXPECT_TRUE(cover.impossible.empty());
  EXPECT_GE(cover.rows.size(), 20u);  // the two longest axes alone need 5 x 4
  EXPECT_LE(cover.rows.size(), 40u);  // out of 4,320
}

TEST(Pairwise, EveryLegalPairMeetsAndNoIllegalRowIsTaken) {
  // Brute force over all rows: which pairs are in a legal row.
  const std::vector<std::size_t> points = {3, 4, 2, 3, 2};
  const auto legal = [](const AxisRow& r) {
    return !(r[0] == 1 && r[1] >= 2) && !(r[2] == 1 && r[3] != 2) && !(r[4] == 1 && r[0] == 0);
  };
  std::vector<AxisRow> all;
  for (std::size_t i = 0; i < 3 * 4 * 2 * 3 * 2; ++i) {
    const AxisRow row = {i % 3, i / 3 % 4, i / 12 % 2, i / 24 % 3, i / 72};
    if (legal(row)) all.push_back(row);
  }
  const Cover cover = pairwise_cover(points, legal, kAllLive);
  for (const AxisRow& row : cover.rows) EXPECT_TRUE(legal(row));
  EXPECT_EQ(pairs_in(cover.rows), pairs_in(all));
  const std::size_t every = 3 * 4 + 3 * 2 + 3 * 3 + 3 * 2 + 4 * 2 + 4 * 3 + 4 * 2 + 2 * 3 + 2 * 2 + 3 * 2;
  EXPECT_EQ(cover.impossible.size(), every - pairs_in(all).size());
}

TEST(Pairwise, FindsLegalPairsAmongManyContradictions) {
  std::minstd_rand draw(7);
  std::size_t legal_pairs = 0;
  std::size_t met = 0;
  for (int problem = 0; problem < 200; ++problem) {
    std::vector<std::size_t> points;
    for (int a = 0; a < 6; ++a) points.push_back(2 + draw() % 3);
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>>
        forbidden;  // (axis, point) pairs that cannot be in one row
    for (std::size_t n = 3 + draw() % 10; n > 0; --n) {
      std::map<std::size_t, std::size_t> together;
      while (together.size() < 2 + n % 2) {
        const std::size_t a = draw() % 6;
        together[a] = draw() % points[a];
      }
      forbidden.emplace_back(together.begin(), together.end());
    }
    const auto legal = [&](const AxisRow& r) {
      return std::none_of(forbidden.begin(), forbidden.end(), [&](const auto& all) {
        return std::all_of(all.begin(), all.end(), [&](const auto& x) { return r[x.first] == x.second; });
      });
    };
    std::vector<AxisRow> all;
    AxisRow row(6, 0);
    for (std::size_t a = 0; a < 6;) {
      if (legal(row) && a == 0) all.push_back(row);
      if (++row[a] < points[a]) {
        a = 0;
      } else {
        row[a++] = 0;
      }
    }
    const Cover cover = pairwise_cover(points, legal, kAllLive);
    for (const AxisRow& r : cover.rows) ASSERT_TRUE(legal(r));
    legal_pairs += pairs_in(all).size();
    met += pairs_in(cover.rows).size();
  }
  EXPECT_GT(legal_pairs, 20000u);
  EXPECT_LE(legal_pairs - met, legal_pairs / 1000);
}

TEST(Pairwise, AnAxisWithoutEffectMeetsNothing) {
  // Axis 1 matters only if axis 0 has its second value.
  const auto live = [](const AxisRow& r, std::size_t axis) { return axis != 1 || r[0] == 1; };
  const Cover cover = pairwise_cover({2, 3, 2}, kAlways, live);
  std::set<Pair> met;
  for (const AxisRow& r : cover.rows) {
    if (r[0] == 1) met.insert({1, r[1], 2, r[2]});
  }
  EXPECT_EQ(met.size(), 6u);
  EXPECT_EQ(cover.indifferent.size(), 3u);  // axis 0's first value with each value of axis 1
  EXPECT_TRUE(cover.impossible.empty());
}

TEST(Pairwise, ASweepCoversItsPairsWithoutItsContradictions) {
  const Expansion e = expand(parse_sweep_text(
      "name: t\nsweeps:\n"
      "  - cover: pairwise\n    batch: [q9s40, q40s9, 3q1s70]\n    kv: [packed, paged]\n    block_size: [16, "
      "64]\n"
      "    mask: [none, causal]\n    softcap: [0, 20]\n    dtype: [bf16, fp16]\n    sinks: [false, true]\n",
      "t.yaml"));
  EXPECT_LT(e.cases.size(), 20u);
  std::set<std::pair<bool, int>> softcap_and_block;
  for (const Case& c : e.cases) {
    if (c.params.kv == KvSource::kPaged)
      softcap_and_block.insert({c.params.softcap > 0, c.params.block_size});
  }
  EXPECT_EQ(softcap_and_block.size(), 4u);  // packed cases with a block size do not count
  EXPECT_THAT(e.cover.impossible, ElementsAre(HasSubstr("batch: q40s9 with mask: causal")));
  EXPECT_THAT(e.cover.indifferent, ElementsAre(HasSubstr("kv: packed with block_size: 16"),
                                               HasSubstr("kv: packed with block_size: 64")));
  EXPECT_THAT(e.duplicates, testing::IsEmpty());
}

}  // namespace
}  // namespace attnbench
