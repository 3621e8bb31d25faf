// Failing drafts shrink to the smallest case that still fails, with an artificial failure.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/fuzz/shrink.h"

namespace attnbench {
namespace {

Draft large() {
  Draft d;
  d.values = {{"kv", "paged"},     {"window", "1023,7"}, {"sinks", "true"},    {"heads", "24/8"},
              {"head_dim", "192"}, {"softcap", "20"},    {"num_splits", "33"}, {"mask", "causal"}};
  d.seqs = {{5, 70}, {1, 2048}, {1, 2047}, {3, 9}, {9, 2048}, {1, 1}};
  return d;
}

int32_t longest(const Draft& d) {
  int32_t k = 0;
  for (const SeqLen& s : d.seqs) k = std::max(k, s.k);
  return k;
}

TEST(FuzzShrink, LeavesWhatTheFailureNeeds) {
  // Fails for a sequence of 100 keys or more, one shorter than the longest, with a window and 4 heads or
  // more.
  const auto fails = [](const Draft& d) {
    const auto heads = d.values.count("heads") ? std::stoi(d.values.at("heads")) : 32;
    return d.values.count("window") && heads >= 4 &&
           std::any_of(d.seqs.begin(), d.seqs.end(),
                       [&](const SeqLen& s) { return s.k >= 100 && s.k == longest(d) - 1; });
  };
  ASSERT_TRUE(fails(large()));
  const Shrunk shrunk = shrink(large(), 2000, fails);
  EXPECT_TRUE(fails(shrunk.draft));
  ASSERT_EQ(shrunk.draft.seqs.size(), 2u);
  EXPECT_EQ(longest(shrunk.draft), 101);
  for (const SeqLen& s : shrunk.draft.seqs) EXPECT_EQ(s.q, 0);
  EXPECT_EQ(shrunk.draft.values.at("window"), "0,0");
  EXPECT_EQ(shrunk.draft.values.at("heads"), "4/4");
  EXPECT_EQ(shrunk.draft.values.size(), 3u) << mapping_of(shrunk.draft);  // head_dim too, as a size
  EXPECT_LT(shrunk.tries, 400);
}

TEST(FuzzShrink, NeverAsksMoreOftenThanItMay) {
  int asked = 0;
  const Shrunk shrunk = shrink(large(), 7, [&](const Draft&) {
    ++asked;
    return false;
  });
  EXPECT_EQ(asked, 7);
  EXPECT_EQ(shrunk.tries, 7);
  EXPECT_EQ(shrunk.draft, large());
}

TEST(FuzzShrink, EndsWhereEverythingFails) {
  const Shrunk shrunk = shrink(large(), 100000, [](const Draft&) { return true; });
  EXPECT_LT(shrunk.tries, 300);
  EXPECT_EQ(shrunk.draft.seqs, std::vector<SeqLen>({{0, 0}}));
  EXPECT_EQ(shrunk.draft.values.size(), 2u) << mapping_of(shrunk.draft);
}

}  // namespace
}  // namespace attnbench
