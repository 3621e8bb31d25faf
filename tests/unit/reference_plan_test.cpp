// How the reference divides its work.
#include "reference/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace attnbench::reference {
namespace {

Problem one_sequence(int q_len, int k_len, int heads_q = 1, int heads_kv = 1) {
  Problem p;
  p.head_dim = 64;
  p.num_heads_q = heads_q;
  p.num_heads_kv = heads_kv;
  p.q_lens = {q_len};
  p.k_lens = {k_len};
  return p;
}

void expect_whole(const Plan& plan, size_t rows) {
  ASSERT_EQ(plan.rows.size(), rows);
  std::vector<Tile> tiles = plan.tiles;
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.first < b.first; });
  int64_t next = 0;
  for (const Tile& tile : tiles) {
    EXPECT_EQ(tile.first, next);
    EXPECT_LT(tile.first, tile.last);
    EXPECT_LE(tile.last - tile.first, kMaxTileRows);
    next = tile.last;
    for (int64_t i = tile.first; i < tile.last; ++i) {
      EXPECT_GE(plan.visible[i].begin, tile.keys.begin);
      EXPECT_LE(plan.visible[i].end, tile.keys.end);
    }
  }
  EXPECT_EQ(next, static_cast<int64_t>(rows));
}

TEST(ReferencePlan, VisibleKeys) {
  Problem p = one_sequence(5, 3);
  p.causal = true;
  EXPECT_TRUE(visible_keys(p, 0, 0).empty());
  EXPECT_TRUE(visible_keys(p, 0, 1).empty());
  EXPECT_EQ(visible_keys(p, 0, 2).end, 1);
  EXPECT_EQ(visible_keys(p, 0, 4).end, 3);
  p.window_left = 0;
  EXPECT_EQ(visible_keys(p, 0, 4).begin, 2);
  p.causal = false;
  p.window_right = 2147483647;
  EXPECT_EQ(visible_keys(p, 0, 0).begin, 0);
  EXPECT_EQ(visible_keys(p, 0, 0).end, 3);
}

TEST(ReferencePlan, OneThreadTakesLargeTiles) {
  const Problem p = one_sequence(2048, 2048);
  const Plan plan = make_plan(p, all_rows(p), 1);
  expect_whole(plan, 2048);
  EXPECT_EQ(plan.tiles.size(), 8u);
}

TEST(ReferencePlan, HeadsOfAGroupShareATile) {
  const Problem p = one_sequence(1, 1000, 8, 2);
  const Plan plan = make_plan(p, all_rows(p), 1);
  expect_whole(plan, 8);
  EXPECT_EQ(plan.tiles.size(), 2u);
}

TEST(ReferencePlan, FewRowsOfALongSequenceAreSplit) {
  const Problem p = one_sequence(64, 60000);
  for (int threads : {1, 2, 4, 8}) {
    const Plan plan = make_plan(p, all_rows(p), threads);
    expect_whole(plan, 64);
    EXPECT_EQ(plan.tiles.size(), static_cast<size_t>(threads));
  }
}

TEST(ReferencePlan, ScoresAreBounded) {
  const Problem p = one_sequence(256, 1000000);
  const Plan plan = make_plan(p, all_rows(p), 1);
  expect_whole(plan, 256);
  for (const Tile& tile : plan.tiles) {
    EXPECT_LE((tile.last - tile.first) * (tile.keys.end - tile.keys.begin), kMaxTileScores);
  }
  EXPECT_EQ(make_plan(one_sequence(1, 2000000000), all_rows(one_sequence(1, 2000000000)), 1).tiles.size(),
            1u);
}

TEST(ReferencePlan, RowsWithoutCommonKeysPart) {
  Problem p = one_sequence(1000, 1000);
  p.causal = true;
  p.window_left = 9;
  const std::vector<RowId> rows = {{0, 10, 0}, {0, 900, 0}, {0, 905, 0}};
  const Plan plan = make_plan(p, rows, 1);
  expect_whole(plan, 3);
  ASSERT_EQ(plan.tiles.size(), 2u);
  EXPECT_EQ(plan.tiles[0].keys.begin, 891);
  EXPECT_EQ(plan.tiles[0].keys.end, 906);
}

TEST(ReferencePlan, EmptyRowsPart) {
  Problem p = one_sequence(5, 3);
  p.causal = true;
  const Plan plan = make_plan(p, all_rows(p), 1);
  expect_whole(plan, 5);
  ASSERT_EQ(plan.tiles.size(), 2u);
  EXPECT_TRUE(plan.tiles[1].keys.empty());
  EXPECT_EQ(plan.tiles[1].last, 2);
}

}  // namespace
}  // namespace attnbench::reference
