// Masks with gaps: their bits, what they cost, and what cannot be combined with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/cases/key_lists.h"
#include "harness/cases/seen_keys.h"

namespace attnbench {
namespace {

Case masked_case(const std::string& yaml, uint64_t seed = 1) {
  return expand(parse_inline_case(yaml, {}, seed)).cases.at(0);
}

std::string mask_refusal(const std::string& yaml) {
  try {
    masked_case(yaml);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

TEST(MaskBits, RandomBitsAreHalfOfAllAndSomeRowsAreEmpty) {
  const MaskBits bits(CustomMask::kRandom, 5, 0, {400, 333});
  int64_t ones = 0, empty = 0;
  for (int i = 0; i < 400; ++i) {
    int64_t of_row = 0;
    for (int j = 0; j < 333; ++j) of_row += bits.sees(i, j);
    for (int j = 333; j < 384; ++j) EXPECT_EQ(bits.row(i)[j / 64] >> (j % 64) & 1, 0u);
    ones += of_row;
    empty += of_row == 0;
    if (of_row > 0) {
      EXPECT_NEAR(static_cast<double>(of_row), 166, 60);
    }
  }
  EXPECT_NEAR(static_cast<double>(empty), 25, 20);
  EXPECT_NEAR(static_cast<double>(ones), (400 - static_cast<double>(empty)) * 166.5, 1500);
}

TEST(MaskBits, ANodeOfATreeSeesItsAncestorsAndAllOlderKeys) {
  const MaskBits bits(CustomMask::kTree, 3, 1, {30, 50});
  int branches = 0;
  for (int i = 0; i < 30; ++i) {
    for (int j = 0; j < 20; ++j) EXPECT_TRUE(bits.sees(i, j));
    EXPECT_TRUE(bits.sees(i, 20 + i));
    for (int j = i + 1; j < 30; ++j) EXPECT_FALSE(bits.sees(i, 20 + j));
    for (int j = 0; j < i; ++j) {  // whoever sees a node sees that node's ancestors
      if (!bits.sees(i, 20 + j)) ++branches;
      for (int a = 0; a < j && bits.sees(i, 20 + j); ++a)
        EXPECT_EQ(bits.sees(i, 20 + a), bits.sees(j, 20 + a));
    }
  }
  EXPECT_GT(branches, 0) << "a chain is no tree";
  const MaskBits few(CustomMask::kTree, 3, 1, {9, 4});
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_FALSE(few.sees(i, j)) << "query " << i << " is no node";
  }
  for (int i = 5; i < 9; ++i) EXPECT_TRUE(few.sees(i, i - 5));
}

TEST(MaskBits, AnItemSeesThePrefixAndItself) {
  const MaskBits bits(CustomMask::kItems, 3, 0, {90, 100});
  int prefix = 0;
  while (bits.sees(89, prefix)) ++prefix;
  EXPECT_GE(prefix, 25);
  EXPECT_LE(prefix, 51);
  std::set<int> firsts;
  for (int i = 0; i < 90; ++i) {
    const int key = i + 10;
    for (int j = 0; j < std::min(prefix, key + 1); ++j) EXPECT_TRUE(bits.sees(i, j)) << i << " " << j;
    if (key < prefix) continue;
    int first = key;
    while (first > prefix && bits.sees(i, first - 1)) --first;
    firsts.insert(first);
    for (int j = prefix; j < 100; ++j) EXPECT_EQ(bits.sees(i, j), j >= first && j <= key) << i << " " << j;
  }
  EXPECT_GT(firsts.size(), 1u);
}

TEST(MaskBits, BlocksAreWhole) {
  const MaskBits bits(CustomMask::kBlocks, 3, 0, {50, 200});
  int seen = 0;
  for (int i = 0; i < 50; ++i) {
    for (int j = 0; j < 200; ++j) {
      seen += bits.sees(i, j);
      EXPECT_EQ(bits.sees(i, j),
                bits.sees(i / kMaskBlockQueries * kMaskBlockQueries, j / kMaskBlockKeys * kMaskBlockKeys));
    }
  }
  EXPECT_GT(seen, 1000);
  EXPECT_LT(seen, 9000);
}

TEST(MaskBits, FollowSeedSequenceAndLengthsAlone) {
  const auto bits = [](uint64_t seed, int seq) {
    return MaskBits(CustomMask::kRandom, seed, seq, {4, 64}).row(2)[0];
  };
  EXPECT_EQ(bits(1, 0), bits(1, 0));
  EXPECT_NE(bits(1, 0), bits(2, 0));
  EXPECT_NE(bits(1, 0), bits(1, 1));
}

TEST(SeenKeys, CostsCountTheBitsWithinTheOtherMasks) {
  for (const char* mask : {"random", "tree", "items", "blocks"}) {
    for (const char* other :
         {"mask: causal", "mask: none, window: \"40,5\"", "mask: none, attention_chunk: 17"}) {
      const Case c = masked_case(std::string("{kv: packed, heads: 4/2, head_dim: 8, custom_mask: ") + mask +
                                     ", " + other + ", allow_short_kv: true, batch: q30s90_q3s70_q0s5_q8s0}",
                                 7);
      const SeenKeys seen(c);
      double pairs = 0;
      std::set<std::pair<std::size_t, int>> keys;
      for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
        const SeqLen s = c.params.seqs[b];
        const MaskBits bits(c.params.custom_mask, 7, static_cast<int32_t>(b), s);
        for (int i = 0; i < s.q; ++i) {
          int64_t count = 0;
          for (int j = 0; j < s.k; ++j) {
            const bool both = bits.sees(i, j) && visible_keys(mask_of(c.params), s.q, s.k, i).contains(j);
            EXPECT_EQ(seen.sees(b, i, 0, j), both);
            count += both;
            if (both) keys.emplace(b, j);
          }
          EXPECT_EQ(seen.count(b, i, 0), count);
          pairs += static_cast<double>(count);
        }
      }
      EXPECT_GT(pairs, 0);
      EXPECT_EQ(cost_of(c).pairs, pairs) << c.id;
      // Rows of K and V are 2 * 2 heads * 8 channels of 2 bytes.
      const Case plain = masked_case(
          std::string("{kv: packed, heads: 4/2, head_dim: 8, mask: none, batch: q30s90_q3s70_q0s5_q8s0}"));
      const double interval =
          cost_of(masked_case(std::string("{kv: packed, heads: 4/2, head_dim: 8, ") + other +
                              ", allow_short_kv: true, batch: q30s90_q3s70_q0s5_q8s0}"))
              .pairs;
      EXPECT_EQ(cost_of(c).bytes - cost_of(plain).bytes,
                64.0 * (static_cast<double>(keys.size()) - 160) + interval / 8)
          << c.id;
    }
  }
}

TEST(SeenKeys, WhatACustomMaskCannotBeCombinedWith) {
  using testing::HasSubstr;
  EXPECT_THAT(mask_refusal("{kv: paged, custom_mask: tree, path: split_decode, batch: q1s9}"),
              HasSubstr("path: split_decode has several"));
  EXPECT_THAT(mask_refusal("{kv: packed, custom_mask: random, batch: 40q8k}"),
              HasSubstr("shorten the batch"));
  EXPECT_EQ(masked_case("{op: attention_backward, custom_mask: tree, batch: q9}").params.custom_mask,
            CustomMask::kNone);
}

TEST(KeyLists, HoldDifferentVisibleKeysInRandomOrderWithGaps) {
  CaseParams p;
  p.topk = 64;
  const KeyRange visible{30, 230};
  int empty = 0, holes = 0, rising = 0, pairs = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<int32_t> list = key_list_of(p, {3, 1, i}, 2, visible);
    ASSERT_EQ(list.size(), 64u);
    std::set<int32_t> keys;
    int previous = -1;
    for (const int32_t key : list) {
      if (key < 0) {
        EXPECT_EQ(key, -1);
        continue;
      }
      EXPECT_TRUE(visible.contains(key));
      EXPECT_TRUE(keys.insert(key).second) << "twice";
      if (previous >= 0) ++pairs, rising += key > previous;
      previous = key;
    }
    if (keys.empty()) {
      ++empty;
    } else {
      EXPECT_GE(keys.size(), 48u);
      holes += 64 - static_cast<int>(keys.size());
    }
  }
  EXPECT_GT(empty, 2);
  EXPECT_LT(empty, 40);
  EXPECT_GT(holes, 500);
  EXPECT_NEAR(static_cast<double>(rising) / pairs, 0.5, 0.05);
  EXPECT_NE(key_list_of(p, {3, 1, 0}, 2, visible), key_list_of(p, {3, 1, 0}, 1, visible))
      << "of another KV head";
  EXPECT_NE(key_list_of(p, {3, 1, 0}, 2, visible), key_list_of(p, {4, 1, 0}, 2, visible))
      << "of another seed";
}

TEST(KeyLists, FewVisibleKeysAreAllListedAndLengthsAreDrawnByQuery) {
  CaseParams p;
  p.topk = 64;
  std::set<std::size_t> lengths;
  for (int i = 0; i < 50; ++i) {
    const auto list = key_list_of(p, {3, 0, i}, 0, {5, 9});
    const auto keys = std::count_if(list.begin(), list.end(), [](int32_t key) { return key >= 0; });
    EXPECT_TRUE(keys == 4 || keys == 0);
    EXPECT_TRUE(key_list_of(p, {3, 0, i}, 0, {7, 7}) == std::vector<int32_t>(64, -1));
    p.topk_length = TopkLength::kDrawn;
    EXPECT_EQ(key_list_of(p, {3, 0, i}, 0, {0, 500}).size(), key_list_of(p, {3, 0, i}, 1, {0, 500}).size());
    lengths.insert(key_list_of(p, {3, 0, i}, 0, {0, 500}).size());
    p.topk_length = TopkLength::kZero;
    EXPECT_TRUE(key_list_of(p, {3, 0, i}, 0, {0, 500}).empty());
    p.topk_length = TopkLength::kFull;
  }
  EXPECT_GT(lengths.size(), 20u);
  EXPECT_LE(*lengths.rbegin(), 64u);
}

TEST(KeyLists, CostsCountListedKeysOfEachKvHead) {
  const Case c = masked_case(
      "{kv: paged, heads: 6/3, head_dim: 8, mask: causal, topk: 20, batch: q30s90_q3s70_q0s5}", 7);
  const SeenKeys seen(c);
  double pairs = 0;
  std::set<std::tuple<std::size_t, int, int>> rows;
  for (std::size_t b = 0; b < 3; ++b) {
    for (int i = 0; i < c.params.seqs[b].q; ++i) {
      for (int h = 0; h < 3; ++h) {
        pairs += static_cast<double>(seen.count(b, i, h));
        for (const int32_t key : seen.listed(b, i, h)) {
          rows.emplace(b, h, key);
          EXPECT_TRUE(seen.sees(b, i, h, key));
        }
      }
    }
  }
  EXPECT_EQ(cost_of(c).pairs, pairs / 3);
  // A row of K and V of a head has 32 bytes; q and O have 6 heads of 8 channels; 33 queries with 3 lists of 20.
  EXPECT_DOUBLE_EQ(cost_of(c).bytes,
                   32.0 * static_cast<double>(rows.size()) + 33 * 6 * (16 + 16 + 4) + 33 * 3 * 20 * 4);
}

TEST(KeyLists, WhatTheyCannotBeCombinedWith) {
  using testing::HasSubstr;
  const auto with = [](const std::string& keys) {
    return mask_refusal("{topk: 8, heads: 4/2, batch: q1s9, " + keys + "}");
  };
  EXPECT_THAT(with("kv: contiguous"), HasSubstr("write 'kv: packed'"));
  for (const char* keys :
       {"kv: paged, append: in_call", "kv: packed, alibi: per_head", "kv: packed, dropout: 0.1",
        "kv: packed, probs: true", "kv: packed, kv_dtype: int8", "kv: packed, custom_mask: tree",
        "kv: packed, kv_dtype: e4m3, v_descales: per_token", "kv: paged, path: split_decode",
        "kv: paged, page_layout: repeated"}) {
    EXPECT_THAT(with(keys), HasSubstr("topk does not go with")) << keys;
  }
  EXPECT_EQ(with("kv: paged, kv_dtype: e4m3"), "");
}

}  // namespace
}  // namespace attnbench
