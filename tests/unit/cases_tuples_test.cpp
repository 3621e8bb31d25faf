// Covers and samples of small tables, compared with all their rows.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "harness/cases/case.h"
#include "harness/cases/cover.h"
#include "harness/cases/value_tuples.h"

namespace attnbench {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const auto kAlwaysLegal = [](const AxisRow&) { return true; };
const auto kAlwaysLive = [](const AxisRow&, std::size_t) { return true; };

/// A tuple as a list that can be in a set: axis, point, axis, point, ...
using Key = std::vector<std::size_t>;

Key key_of(const ValueTuple& tuple) {
  Key key;
  for (const AxisValue& v : tuple) key.insert(key.end(), {v.axis, v.point});
  return key;
}

std::vector<AxisRow> all_rows(const std::vector<std::size_t>& points) {
  std::vector<AxisRow> rows = {{}};
  for (const std::size_t n : points) {
    std::vector<AxisRow> longer;
    for (const AxisRow& row : rows) {
      for (std::size_t i = 0; i < n; ++i) {
        longer.push_back(row);
        longer.back().push_back(i);
      }
    }
    rows = longer;
  }
  return rows;
}

/// The tuples of `size` values in the row; with `live`, only those that make a difference.
std::vector<Key> tuples_in(const AxisTable& table, const AxisRow& row, std::size_t size, bool live) {
  std::vector<Key> keys = {{}};
  std::vector<Key> found;
  for (std::size_t a = 0; a < row.size(); ++a) {
    if (live && !table.live(row, a)) continue;
    for (std::size_t n = keys.size(); n-- > 0;) {
      Key longer = keys[n];
      longer.insert(longer.end(), {a, row[a]});
      (longer.size() == 2 * size ? found : keys).push_back(longer);
    }
  }
  return found;
}

/// Facts about the tuples of a table, from all its rows.
struct Truth {
  std::set<Key> legal, living;

  Truth(const AxisTable& table, std::size_t size) {
    for (const AxisRow& row : all_rows(table.points)) {
      if (!table.legal(row)) continue;
      for (const Key& key : tuples_in(table, row, size, false)) legal.insert(key);
      for (const Key& key : tuples_in(table, row, size, true)) living.insert(key);
    }
  }
};

/// Whether the tuple, or a pair in it, is in the list.
bool is_listed(const ValueTuple& tuple, const std::set<Key>& listed) {
  if (listed.count(key_of(tuple))) return true;
  for (std::size_t n = 0; n < tuple.size() && tuple.size() == 3; ++n) {
    ValueTuple pair = tuple;
    pair.erase(pair.begin() + static_cast<std::ptrdiff_t>(n));
    if (listed.count(key_of(pair))) return true;
  }
  return false;
}

std::set<Key> keys_of(const std::vector<ValueTuple>& tuples) {
  std::set<Key> keys;
  for (const ValueTuple& t : tuples) EXPECT_TRUE(keys.insert(key_of(t)).second) << "listed twice";
  return keys;
}

/// Compares a cover with all rows: its impossible tuples are impossible, legal ones are covered, and no row
/// is repeated.
void expect_true(const AxisTable& table, std::size_t strength, uint64_t seed) {
  const Cover cover = cover_tuples(table, strength, seed);
  EXPECT_TRUE(cover.exact);
  const Truth truth(table, strength);
  std::set<Key> met;
  for (const AxisRow& row : cover.rows) {
    ASSERT_TRUE(table.legal(row));
    for (const Key& key : tuples_in(table, row, strength, true)) met.insert(key);
  }
  EXPECT_EQ(met, truth.living);
  EXPECT_EQ(cover.met, static_cast<int64_t>(truth.living.size()));
  EXPECT_THAT(std::set<AxisRow>(cover.rows.begin(), cover.rows.end()), SizeIs(cover.rows.size()));

  const std::set<Key> impossible = keys_of(cover.impossible), indifferent = keys_of(cover.indifferent);
  TupleSet(table.points, strength, true).for_each([&](const ValueTuple& tuple) {
    const Key key = key_of(tuple);
    EXPECT_EQ(is_listed(tuple, impossible), !truth.legal.count(key));
    EXPECT_EQ(is_listed(tuple, impossible) || is_listed(tuple, indifferent), !truth.living.count(key));
    if (!truth.legal.count(key)) return;
    EXPECT_EQ(is_listed(tuple, indifferent), !truth.living.count(key));
  });
  if (strength < 3) return;
  // Triples are listed only if none of their pairs is.
  for (const auto& [listed, all] :
       {std::pair(cover.impossible, impossible), {cover.indifferent, indifferent}}) {
    for (const ValueTuple& tuple : listed) {
      std::set<Key> others = all;
      others.erase(key_of(tuple));
      EXPECT_FALSE(is_listed(tuple, others));
    }
  }
}

/// A random table of six axes with contradictions of two and three values, and axes that make a difference
/// only if another axis has a certain value.
AxisTable drawn_table(std::minstd_rand& draw) {
  std::vector<std::size_t> points;
  for (int a = 0; a < 6; ++a) points.push_back(2 + draw() % 2);
  std::vector<std::vector<AxisValue>> forbidden;
  for (std::size_t n = 2 + draw() % 8; n > 0; --n) {
    std::map<std::size_t, std::size_t> together;
    while (together.size() < 2 + n % 2) {
      const std::size_t a = draw() % 6;
      together[a] = draw() % points[a];
    }
    forbidden.emplace_back();
    for (const auto& [axis, point] : together) forbidden.back().push_back({axis, point});
  }
  std::map<std::size_t, AxisValue> asks;  // axis -> the value of another axis that it needs
  for (int n = 0; n < 2; ++n) {
    const std::size_t a = draw() % 6, b = (a + 1 + draw() % 5) % 6;
    asks[a] = {b, draw() % points[b]};
  }
  const auto legal = [forbidden](const AxisRow& r) {
    return std::none_of(forbidden.begin(), forbidden.end(), [&](const auto& all) {
      return std::all_of(all.begin(), all.end(), [&](const AxisValue& v) { return r[v.axis] == v.point; });
    });
  };
  const auto live = [asks](const AxisRow& r, std::size_t axis) {
    const auto at = asks.find(axis);
    return at == asks.end() || r[at->second.axis] == at->second.point;
  };
  return {points, legal, live};
}

TEST(Tuples, PairsAreAsAllRowsSay) {
  std::minstd_rand draw(5);
  for (uint64_t n = 0; n < 60 && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE(n);
    expect_true(drawn_table(draw), 2, n);
  }
}

TEST(Tuples, TriplesAreAsAllRowsSay) {
  std::minstd_rand draw(6);
  for (uint64_t n = 0; n < 60 && !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE(n);
    expect_true(drawn_table(draw), 3, n);
  }
}

/// If there are too many rows to try all, rows are found from what values need.
TEST(Tuples, FewPairsOfALargeTableAreMissed) {
  std::minstd_rand draw(7);
  std::size_t living = 0, met = 0, wrongly_impossible = 0;
  for (uint64_t n = 0; n < 60; ++n) {
    const AxisTable small = drawn_table(draw);
    const Truth truth(small, 2);
    AxisTable large = small;  // plus neutral axes, until it is too large to try all rows
    for (int more = 0; more < 7; ++more) large.points.push_back(3);
    large.live = [live = small.live](const AxisRow& r, std::size_t axis) {
      return axis >= 6 || live(r, axis);
    };
    const Cover cover = cover_tuples(large, 2, n);
    ASSERT_FALSE(cover.exact);
    std::set<Key> pairs;
    for (const AxisRow& row : cover.rows) {
      for (const Key& key : tuples_in(large, row, 2, true)) {
        if (key[2] < 6) pairs.insert(key);
      }
    }
    living += truth.living.size();
    met += pairs.size();
    for (const ValueTuple& t : cover.indifferent) EXPECT_TRUE(t[1].axis >= 6 || truth.legal.count(key_of(t)));
    for (const ValueTuple& t : cover.impossible)
      wrongly_impossible += t[1].axis < 6 && truth.legal.count(key_of(t));
  }
  EXPECT_GT(living, 4000u);
  EXPECT_LE(living - met, living / 500);
  EXPECT_LE(wrongly_impossible, living / 500);
  RecordProperty("missed", std::to_string(living - met));
  RecordProperty("wrongly_impossible", std::to_string(wrongly_impossible));
}

/// If two axes already need all rows, the other values are free. They then go through all triples too.
TEST(Tuples, WhatNoPairAsksForIsDrawn) {
  const AxisTable table = {{8, 8, 2, 2, 2, 2, 2, 2}, kAlwaysLegal, kAlwaysLive};
  const Cover cover = cover_tuples(table, 2, 1);
  EXPECT_THAT(cover.rows, SizeIs(64));
  std::set<AxisRow> fillings;
  std::set<Key> triples;
  for (const AxisRow& row : cover.rows) {
    fillings.insert(AxisRow(row.begin() + 2, row.end()));
    for (const Key& key : tuples_in(table, row, 3, true)) {
      if (key[0] >= 2) triples.insert(key);
    }
  }
  EXPECT_GE(fillings.size(), 25u);
  EXPECT_THAT(triples, SizeIs(160));
}

TEST(Tuples, AnotherSeedDrawsOtherRows) {
  const AxisTable table = {{8, 8, 2, 2, 2, 2}, kAlwaysLegal, kAlwaysLive};
  EXPECT_EQ(cover_tuples(table, 2, 7).rows, cover_tuples(table, 2, 7).rows);
  EXPECT_NE(cover_tuples(table, 2, 7).rows, cover_tuples(table, 2, 8).rows);
}

TEST(Tuples, TriplesMeetInFewRows) {
  const Cover cover = cover_tuples({{4, 3, 3, 2, 5, 2, 2, 3}, kAlwaysLegal, kAlwaysLive}, 3, 1);
  EXPECT_THAT(cover.impossible, IsEmpty());
  EXPECT_GE(cover.rows.size(), 60u);   // the three longest axes alone need 5 x 4 x 3
  EXPECT_LE(cover.rows.size(), 120u);  // of 4,320
}

std::vector<AxisRow> sample(const AxisTable& table, int64_t count, uint64_t seed) {
  std::vector<AxisRow> rows;
  sample_rows(table, count, seed, [&](const AxisRow& row) {
    rows.push_back(row);
    return true;
  });
  return rows;
}

/// Rows must be the same on every machine. These are from one machine.
TEST(Tuples, DrawsAreTheSameEverywhere) {
  const AxisTable table = {{9, 9, 9, 9}, kAlwaysLegal, kAlwaysLive};
  EXPECT_THAT(sample(table, 3, 1),
              ElementsAre(AxisRow{6, 2, 8, 0}, AxisRow{1, 8, 4, 2}, AxisRow{0, 2, 0, 1}));
}

TEST(Tuples, ASampleHoldsLegalRowsOnce) {
  for (const std::size_t axes : {3, 9}) {  // 125 rows, and more rows than can be tried one by one
    AxisTable table = {std::vector<std::size_t>(axes, 5), kAlwaysLegal, kAlwaysLive};
    table.legal = [](const AxisRow& r) { return r[0] != 1 && (r[1] != 2 || r[2] == 3); };
    const std::vector<AxisRow> rows = sample(table, 40, 3);
    EXPECT_THAT(rows, SizeIs(40));
    EXPECT_THAT(std::set<AxisRow>(rows.begin(), rows.end()), SizeIs(40));
    EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), table.legal));
    EXPECT_EQ(rows, sample(table, 40, 3));
    EXPECT_NE(rows, sample(table, 40, 4));
    std::set<std::size_t> points;
    for (const AxisRow& row : rows) points.insert(row[1]);
    EXPECT_THAT(points, SizeIs(5));
  }
}

TEST(Tuples, ASampleEndsWhereRowsDo) {
  AxisTable table = {{5, 5, 5}, kAlwaysLegal, kAlwaysLive};
  EXPECT_THAT(sample(table, 1000, 1), SizeIs(125));
  table.points = std::vector<std::size_t>(9, 5);
  table.legal = [](const AxisRow& r) { return std::count(r.begin(), r.end(), 0u) >= 8; };
  EXPECT_THAT(sample(table, 1000, 1).size(), AnyOf(36u, 37u));  // 4 per axis of 9; the plainest row is rare
}

Expansion expand_cover(const std::string& cover, const std::string& seed = "1") {
  return expand(parse_sweep_text(
      "name: t\nseed: " + seed + "\nsweeps:\n  - cover: " + cover +
          "\n    batch: [q9s40, q40s9, 3q1s70]\n    kv: [packed, paged, contiguous]\n    block_size: [16, "
          "64]\n"
          "    leftpad: [0, 3]\n    mask: [none, causal]\n    softcap: [0, 20]\n    sinks: [false, true]\n",
      "t.yaml"));
}

/// The output of `list --impossible`, compared with all cases of the sweep's product.
TEST(Tuples, ASweepSaysWhichValuesNoCaseHolds) {
  const Expansion pairs = expand_cover("pairwise");
  EXPECT_THAT(pairs.cover.impossible, ElementsAre("sweep1: batch: q40s9 with mask: causal"));
  EXPECT_THAT(pairs.cover.indifferent,
              UnorderedElementsAre(
                  "sweep1: kv: packed with block_size: 16", "sweep1: kv: packed with block_size: 64",
                  "sweep1: kv: contiguous with block_size: 16", "sweep1: kv: contiguous with block_size: 64",
                  "sweep1: kv: packed with leftpad: 0", "sweep1: kv: packed with leftpad: 3"));
  EXPECT_TRUE(pairs.cover.exact);
  EXPECT_EQ(pairs.cover.triples, 0);
  const Expansion triples = expand_cover("3");
  EXPECT_EQ(triples.cover.impossible, pairs.cover.impossible);
  EXPECT_EQ(triples.cover.indifferent, pairs.cover.indifferent);
  EXPECT_EQ(triples.cover.pairs, 0);
  EXPECT_GT(triples.cases.size(), pairs.cases.size());
}

TEST(Tuples, ASampleOfASweep) {
  const Expansion e = expand_cover("{sample: 20}");
  EXPECT_THAT(e.cases, SizeIs(20));
  EXPECT_THAT(e.cover.short_samples, IsEmpty());
  std::set<std::string> ids, others;
  for (const Case& c : e.cases) ids.insert(c.id);
  EXPECT_THAT(ids, SizeIs(20));
  for (const Case& c : expand_cover("{sample: 20}", "2").cases) others.insert(c.id);
  EXPECT_NE(ids, others);
  // 5 pairs of batch and mask; 1 packed, 2 paged and 2 contiguous sources; softcap and sinks.
  const Expansion all = expand_cover("{sample: 1000}");
  EXPECT_THAT(all.cases, SizeIs(5 * 5 * 4));
  EXPECT_THAT(all.cover.short_samples, ElementsAre("sweep1: 100 of 1000: no other legal case was found"));
}

/// With fewer axes than values that must meet, all combinations are cases.
TEST(Tuples, FewAxes) {
  const auto cases = [](const std::string& axes) {
    return expand(parse_sweep_text("name: t\nsweeps:\n  - cover: 3\n    batch: q9\n" + axes, "t.yaml"))
        .cases.size();
  };
  EXPECT_EQ(cases(""), 1u);
  EXPECT_EQ(cases("    softcap: [0, 1, 2]\n"), 3u);
  EXPECT_EQ(cases("    softcap: [0, 1, 2]\n    dtype: [bf16, fp16]\n"), 6u);
}

TEST(Tuples, ATableTooLargeForACoverIsRefused) {
  std::string lengths;
  for (int n = 1; n <= 1100; ++n) lengths += fmt::format("{}q{}", n > 1 ? ", " : "", n);
  std::string scales;
  for (int n = 1; n <= 1000; ++n) scales += fmt::format("{}{}", n > 1 ? ", " : "", n);
  try {
    expand(parse_sweep_text("name: t\nsweeps:\n  - cover: pairwise\n    batch: [" + lengths +
                                "]\n    softmax_scale: [" + scales + "]\n",
                            "t.yaml"));
    FAIL() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("t.yaml:3:5: error: the cover of sweep 'sweep1' has 1100000 comb"));
  }
}

}  // namespace
}  // namespace attnbench
