// The division of an append's rows into blocks and passes: each row is met once, and a lane keeps its head.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/cuda/append/cut.h"

namespace attnbench::cuda_append::alike {
namespace {

/// Counts how often each row is met when rows are walked as in alike_kernel. Fails if a warp's first lane
/// stops too soon or a lane's head changes.
std::vector<int> met(uint32_t tokens, uint32_t heads, uint32_t rows_per_block, const Cut& cut) {
  std::vector<int> count(size_t{tokens} * heads);
  const uint32_t rows_per_warp = std::max(rows_per_block / 4, 1u);
  for (uint32_t x = 0; x < cut.blocks_x; ++x) {
    for (uint32_t y = 0; y < cut.blocks_y; ++y) {
      const uint32_t first = first_row(x, y, cut.blocks_y, cut.passes, rows_per_block);
      for (uint32_t row = 0; row < rows_per_block; ++row) {
        const auto token_of = [&](uint32_t r) { return (first + r) / heads; };
        const auto end_of = [&](uint32_t r) {
          return std::min(tokens, token_of(r) + cut.passes * cut.token_step);
        };
        const uint32_t leader = row / rows_per_warp * rows_per_warp;
        const uint32_t head = (first + row) % heads;
        uint32_t token = token_of(row);
        for (uint32_t t = token_of(leader); t < end_of(leader); t += cut.token_step) {
          if (token < end_of(row)) ++count[size_t{token} * heads + head];
          token += cut.token_step;
        }
      }
    }
  }
  return count;
}

TEST(AppendCut, MeetsEachRowOnce) {
  std::mt19937 random(2);
  const auto pick = [&](std::vector<uint32_t> from) { return from[random() % from.size()]; };
  int staying = 0, in_a_row = 0, of_short = 0, single = 0;
  for (int i = 0; i < 800; ++i) {
    const uint32_t heads = pick({1, 2, 3, 5, 7, 8, 10, 12, 16, 63, 126, 1000});
    const uint32_t tokens = 1 + random() % pick({1, 3, 20, 300, 3000}) % (200'000 / heads);
    const uint32_t rows_per_block = pick({4, 8, 16, 32, 64});
    const uint32_t room = pick({4, 52, 528});
    const uint32_t most_staying = pick({24, UINT32_MAX});
    const Cut cut = cut_of(tokens, heads, rows_per_block, room, most_staying);
    ASSERT_LE(cut.blocks_y, 65'535u);
    const std::vector<int> count = met(tokens, heads, rows_per_block, cut);
    for (size_t r = 0; r < count.size(); ++r) {
      ASSERT_EQ(count[r], 1) << "row " << r << " of " << tokens << " tokens, " << heads << " heads, "
                             << rows_per_block << " rows a block, room for " << room;
    }
    const bool one_x = cut.blocks_x == 1;
    single += one_x && cut.passes == 1;
    staying += one_x && cut.passes > 8;
    in_a_row += !one_x && cut.passes > 2;
    of_short += !one_x && cut.passes == 2;
  }
  for (int cases : {single, staying, in_a_row, of_short}) EXPECT_GT(cases, 10);
}

}  // namespace
}  // namespace attnbench::cuda_append::alike
