#include <gtest/gtest.h>

#include "harness/config/given_blocks.h"
#include "harness/error.h"

namespace attnbench {
namespace {

TEST(GivenBlocks, PlacesOfOneBlockHaveTheValuesOfItsFullest) {
  // Blocks of 4 tokens. Sequences 0 and 2 share block 5; block 9 is the last of sequence 0, with 1 key, and
  // the first of sequence 1, with 4.
  const GivenBlocks g({{5, 9}, {9, 2}, {5}}, {5, 6, 4}, 4);
  EXPECT_EQ(g.num_blocks(), 10);
  EXPECT_EQ(g.shared(), 2);
  EXPECT_EQ(g.rows(), 4 + 4 + 2);
  const auto owner = [&](int32_t seq, int32_t pos) {
    const GivenBlocks::Row row = g.owner(seq, pos);
    return std::pair(row.seq, row.pos);
  };
  EXPECT_EQ(owner(0, 3), std::pair(0, 3));
  EXPECT_EQ(owner(2, 3), std::pair(0, 3));
  EXPECT_EQ(owner(0, 4), std::pair(1, 0));
  EXPECT_EQ(owner(1, 5), std::pair(1, 5));
}

TEST(GivenBlocks, DigestsTellTablesApart) {
  const auto digest = [](GivenBlocks::Ids ids, const std::vector<int32_t>& lens) {
    return GivenBlocks(std::move(ids), lens, 1).digest();
  };
  EXPECT_EQ(digest({{1, 2}, {3}}, {2, 1}), digest({{1, 2}, {3}}, {2, 1}));
  EXPECT_NE(digest({{1, 2}, {3}}, {2, 1}), digest({{1}, {2, 3}}, {1, 2}));
  EXPECT_NE(digest({{1, 2}, {3}}, {2, 1}), digest({{1, 2}, {4}}, {2, 1}));
}

TEST(GivenBlocks, RefusesTablesThatDoNotFit) {
  EXPECT_THROW(GivenBlocks({{1}}, {5}, 4), Error);
  EXPECT_THROW(GivenBlocks({{1}, {2}}, {4}, 4), Error);
  EXPECT_THROW(GivenBlocks({{-1}}, {4}, 4), Error);
  EXPECT_THROW(GivenBlocks({{2147483647}}, {4}, 4), Error);
}

}  // namespace
}  // namespace attnbench
