// The estimate that sm90_mixed makes of a step from host data.
#include <gtest/gtest.h>

#include "kernels/cuda/sm90_mixed/division.h"

namespace attnbench::sm90_mixed {
namespace {

/// 32/8 heads of 128 channels.
AttentionParams step(int batch, int longest_q, int longest_k) {
  AttentionParams p{};
  p.num_heads_q = 32;
  p.num_heads_kv = 8;
  p.head_dim = 128;
  p.window_left = p.window_right = -1;
  p.batch = batch;
  p.max_seqlen_q = longest_q;
  p.max_seqlen_k = longest_k;
  return p;
}

/// A chunk of `q_len` beside decodes.
Estimate chunk_and_decodes(int q_len, int decodes, int longest_k) {
  return estimate(step(1 + decodes, q_len, longest_k));
}

TEST(MixedDivision, TimesAreTheWorkOverTheRates) {
  const Estimate e = chunk_and_decodes(2048, 63, 8192);
  EXPECT_NEAR(e.chunk_us, 4.0 * 32 * 128 * 2048 * 7168 / 650e6, 1e-6);
  EXPECT_NEAR(e.decode_us, 4.0 * 8 * 128 * 63 * 4096 / 3e6, 1e-6);
  AttentionParams window = step(3, 2048, 8192);
  window.window_left = 127;
  EXPECT_NEAR(estimate(window).chunk_us, 4.0 * 32 * 128 * 2048 * 128 / 650e6, 1e-6);
  EXPECT_NEAR(estimate(window).decode_us, 4.0 * 8 * 128 * 2 * 128 / 3e6, 1e-6);
}

TEST(MixedDivision, RowsOfNobodyChangeNothing) {
  AttentionParams padded = step(16, 512, 2048);
  padded.total_q = 4096;
  EXPECT_EQ(estimate(padded).chunk_us, chunk_and_decodes(512, 15, 2048).chunk_us);
  EXPECT_EQ(estimate(padded).decode_us, chunk_and_decodes(512, 15, 2048).decode_us);
}

TEST(MixedDivision, OneLaunchWhereAStepIsSmallOrHasNoDecode) {
  EXPECT_TRUE(one_launch(chunk_and_decodes(512, 15, 2048), false));
  EXPECT_TRUE(one_launch(chunk_and_decodes(1024, 15, 1024), false));
  EXPECT_TRUE(one_launch(chunk_and_decodes(512, 3, 512), false));
  EXPECT_TRUE(one_launch(chunk_and_decodes(4096, 0, 65536), false));
  EXPECT_FALSE(one_launch(chunk_and_decodes(512, 63, 2048), false));
  EXPECT_FALSE(one_launch(chunk_and_decodes(128, 31, 1024), false));  // decodes are most of the work
  EXPECT_FALSE(one_launch(chunk_and_decodes(2048, 15, 8192), false));
}

TEST(MixedDivision, TogetherUnlessThereIsLittleToDecode) {
  EXPECT_TRUE(one_launch(chunk_and_decodes(512, 7, 512), true));
  EXPECT_TRUE(one_launch(chunk_and_decodes(2048, 1, 8192), true));
  EXPECT_TRUE(one_launch(chunk_and_decodes(4096, 0, 65536), true));
  EXPECT_FALSE(one_launch(chunk_and_decodes(512, 15, 2048), true));
  EXPECT_FALSE(one_launch(chunk_and_decodes(64, 7, 512), true));  // decodes are most of the work
  EXPECT_FALSE(one_launch(chunk_and_decodes(2048, 63, 8192), true));
}

TEST(MixedDivision, LongerDecodesGetMore) {
  const double equal = decode_share(chunk_and_decodes(2048, 63, 8192));
  const double longer = decode_share(chunk_and_decodes(1024, 63, 4096));
  const double longest = decode_share(chunk_and_decodes(512, 63, 8192));
  EXPECT_EQ(equal, 0.25);
  EXPECT_GT(longer, equal);
  EXPECT_GT(longest, longer);
}

}  // namespace
}  // namespace attnbench::sm90_mixed
