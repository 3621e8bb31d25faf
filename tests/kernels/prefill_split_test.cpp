// The choice of splits in sm90_prefill/split.h and cascade.h, on GPUs of 78 to 144 multiprocessors.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/sm90_prefill/cascade.h"
#include "kernels/cuda/sm90_prefill/split.h"

namespace attnbench::sm90_prefill {
namespace {

struct Sequence {
  int32_t works;   ///< its tiles times the launch's head tiles
  int32_t blocks;  ///< KV blocks of its last tile
};

/// Numbers from low to high, both included.
class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  int32_t operator()(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

 private:
  std::mt19937 random_;
};

SplitChoice choice_for(const std::vector<Sequence>& batch, int32_t multiprocessors) {
  float blocks = 0;
  int32_t longest = 0;
  for (const Sequence& s : batch) {
    blocks += static_cast<float>(s.works) * static_cast<float>(s.blocks);
    longest = std::max(longest, s.blocks);
  }
  return best_split(blocks / static_cast<float>(longest), longest, multiprocessors);
}

/// Splits of the tiles of one sequence of `works` works and 512 KV blocks, on 132 multiprocessors.
int32_t splits_alone(int32_t works) { return splits_of(512, choice_for({{works, 512}}, 132).length); }

TEST(PrefillSplit, FillsTheMultiprocessors) {
  EXPECT_EQ(splits_alone(8), 16);
  EXPECT_EQ(splits_alone(16), 8);
  EXPECT_EQ(splits_alone(32), 4);
  EXPECT_EQ(splits_alone(64), 2);
  EXPECT_EQ(splits_alone(4), 32);  // 33 would be of 16 KV blocks too
}

TEST(PrefillSplit, LeavesFullRoundsWhole) {
  EXPECT_EQ(splits_alone(128), 1);
  EXPECT_EQ(splits_alone(132), 1);
  EXPECT_EQ(splits_alone(264), 1);
}

TEST(PrefillSplit, CutsAnUnevenLastRound) {
  EXPECT_GT(splits_alone(140), 1);  // whole: a second round with 8 works
}

TEST(PrefillSplit, LeavesShortKeysWhole) {
  EXPECT_EQ(choice_for({{64, 16}}, 132).length, 16);  // measured: 45 us split, 35 whole
}

TEST(PrefillSplit, OnlyTheLongSequenceIsSplit) {
  const SplitChoice choice = choice_for({{16, 512}, {16, 16}, {16, 16}, {16, 16}}, 132);
  EXPECT_GE(splits_of(512, choice.length), 6);
  EXPECT_EQ(splits_of(16, choice.length), 1);
}

TEST(PrefillSplit, EqualSplitsCoverEveryBlockAndNoneIsTooLong) {
  for (int32_t blocks = 0; blocks <= 700; ++blocks) {
    for (const int32_t length : {4, 5, 7, 33, 128, 700}) {
      const int32_t splits = splits_of(blocks, length);
      const int32_t equal = (blocks + splits - 1) / splits;  // as in SplitSequence
      ASSERT_GE(splits * equal, blocks);
      ASSERT_LE(equal, length);
      ASSERT_EQ(equal > 0, blocks > 0);
    }
  }
}

TEST(PrefillSplit, StatesHaveRoomAndTheTimeIsNeverWorse) {
  Draw draw(1);
  int32_t splitting = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int32_t multiprocessors = draw(78, 144);
    const int32_t heads = draw(1, 16);
    std::vector<Sequence> batch;
    int32_t left = kMostWholeRounds * multiprocessors;  // more works are not split
    for (int32_t sequences = draw(1, 32); sequences > 0 && left >= heads; --sequences) {
      const int32_t tiles = draw(1, std::min(left / heads, 12));
      batch.push_back({tiles * heads, 1 << draw(0, 12)});
      batch.back().blocks += draw(0, batch.back().blocks);
      left -= tiles * heads;
    }
    const SplitChoice choice = choice_for(batch, multiprocessors);
    int64_t states = 0;
    int32_t longest = 0;
    float blocks = 0;
    for (const Sequence& s : batch) {
      const int32_t splits = splits_of(s.blocks, choice.length);
      if (splits > 1) states += int64_t{s.works} * splits;
      longest = std::max(longest, s.blocks);
      blocks += static_cast<float>(s.works) * static_cast<float>(s.blocks);
    }
    const float works = blocks / static_cast<float>(longest);
    ASSERT_LE(states, int64_t{kStateRounds} * multiprocessors);
    ASSERT_LE(choice.time, split_into(0, works, longest, multiprocessors).time);
    splitting += states > 0 ? 1 : 0;
  }
  EXPECT_GT(splitting, 5'000);  // the loop above met splits
}

/// Splits of a sequence whose tiles are `works` for all head tiles together.
int32_t fixed_splits(int32_t works, int32_t blocks) { return fixed_division(works, 1, blocks).splits; }

TEST(FixedSplits, FollowFromASequenceAlone) {
  EXPECT_EQ(fixed_splits(8, 512), 16);
  EXPECT_EQ(fixed_splits(64, 512), 2);
  EXPECT_EQ(fixed_splits(67, 512), 1);  // two splits would be 134 works
  EXPECT_EQ(fixed_splits(8, 63), 1);
  EXPECT_EQ(fixed_splits(8, 64), 2);
  EXPECT_EQ(fixed_splits(8, 100), 3);  // of at most 34 KV blocks
  EXPECT_EQ(fixed_splits(4, 64), 4) << "few works leave multiprocessors free";
  EXPECT_EQ(fixed_splits(4, 512), 32);
  EXPECT_EQ(fixed_splits(4, 1024), 32);
  EXPECT_EQ(fixed_splits(1, 2048), 64);
  EXPECT_EQ(fixed_splits(4, 63), 1) << "no list for launches of fewer than 64 KV blocks";
  EXPECT_EQ(fixed_splits(0, 512), 1);  // no queries
  EXPECT_EQ(fixed_division(2, 4, 512).splits, 16) << "head tiles count as tiles do";
}

TEST(FixedSplits, CoverEveryBlockAndFillAtMostOneRound) {
  for (int32_t works = 1; works <= 140; ++works) {
    for (int32_t blocks = 0; blocks <= 2200; ++blocks) {
      const Division d = fixed_division(works, 1, blocks);
      ASSERT_TRUE(d.splits == 1 || works * d.splits <= kFixedWorks);
      ASSERT_GE(d.splits * d.length, blocks);
      ASSERT_LE(most_fixed_splits(works + 1, blocks), most_fixed_splits(works, blocks));
      ASSERT_LE(most_fixed_splits(works, blocks), most_fixed_splits(works, blocks + 1));
      ASSERT_TRUE(d.splits == 1 || ((d.splits - 1) * d.length < blocks &&
                                    d.length >= (works > kFewWorks ? kLeastFixedSplit : kLeastFewSplit)));
    }
  }
}

TEST(PrefixSplits, FillTheMultiprocessorsInWholeRounds) {
  EXPECT_EQ(prefix_splits(64, 32, 132), 4);  // 128 works; 5 splits would be 160 in two rounds
  EXPECT_EQ(prefix_splits(64, 32, 78), 2);
  EXPECT_EQ(prefix_splits(64, 64, 132), 2);
  EXPECT_EQ(prefix_splits(64, 128, 132), 1);
  EXPECT_EQ(prefix_splits(64, 400, 132), 1);
}

TEST(PrefixSplits, ThereAreNoneWithoutAPrefix) {
  EXPECT_EQ(prefix_splits(0, 32, 132), 0);
  EXPECT_EQ(prefix_splits(64, 0, 132), 0);
}

TEST(PrefixSplits, StatesHaveRoomAndTheTimeIsNeverWorse) {
  Draw draw(2);
  int32_t splitting = 0;
  for (int i = 0; i < 20'000; ++i) {
    const int32_t multiprocessors = draw(78, 144), head_tiles = draw(1, 64), tiles = draw(1, 20);
    const int32_t blocks = draw(1, 1 << draw(0, 12)), works = tiles * head_tiles;
    const int32_t splits = prefix_splits(blocks, works, multiprocessors);
    ASSERT_LE(tiles * splits, most_prefix_states(tiles, head_tiles, multiprocessors));
    // Keys that one multiprocessor works on in turn, in KV blocks.
    const auto in_turn = [&](int32_t n) {
      return (works * n + multiprocessors - 1) / multiprocessors * ((blocks + n - 1) / n);
    };
    ASSERT_LE(in_turn(splits), in_turn(1));
    splitting += splits > 1 ? 1 : 0;
  }
  EXPECT_GT(splitting, 2'000);  // the loop above met splits
}

}  // namespace
}  // namespace attnbench::sm90_prefill
