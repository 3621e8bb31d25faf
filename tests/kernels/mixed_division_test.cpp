// The estimate that sm90_mixed makes of a step from host data, and the pace of sm90_decode, on several GPUs.
#include <gtest/gtest.h>

#include "kernels/cuda/sm90_decode/step.h"
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

constexpr hopper::GpuRates kH100 = hopper::rates_of(132, 1'980'000, 2'619'000, 5120);
constexpr hopper::GpuRates kH200 = hopper::rates_of(132, 1'980'000, 3'201'000, 6144);

/// A chunk of `q_len` beside decodes.
Estimate chunk_and_decodes(int q_len, int decodes, int longest_k) {
  return estimate(step(1 + decodes, q_len, longest_k), kH100);
}

TEST(MixedDivision, StepsOfFewRowsAreDecodes) {
  EXPECT_TRUE(few_rows(step(64, 1, 4096)));
  EXPECT_TRUE(few_rows(step(1, 16, 65536)));  // 64 rows per KV head
  EXPECT_FALSE(few_rows(step(1, 17, 65536)));
  EXPECT_FALSE(few_rows(step(32, 2048, 8192)));
  AttentionParams one_head = step(1, 8, 65536);
  one_head.num_heads_q = 8;
  one_head.num_heads_kv = 1;  // 64 rows, in 132 splits
  EXPECT_TRUE(few_rows(one_head));
  AttentionParams many_rows = step(4, 1, 4096);
  many_rows.num_heads_q = 1024;  // one token has more than 64 rows
  EXPECT_TRUE(few_rows(many_rows));
}

TEST(MixedDivision, PrefillTakesManyRowsOverLongKeysInE4m3) {
  AttentionParams p = step(4, 16, 4096);  // 64 rows per KV head, 2^17 keys of all sequences and KV heads
  p.window_left = -1;
  EXPECT_FALSE(prefill_is_sooner(p));
  p.features |= kE4m3Kv;
  EXPECT_TRUE(prefill_is_sooner(p));
  AttentionParams other = p;
  other.max_seqlen_q = 8;
  EXPECT_FALSE(prefill_is_sooner(other));
  other = p;
  other.max_seqlen_k = 4095;
  EXPECT_FALSE(prefill_is_sooner(other));
  other = p;
  other.window_left = 4000;
  EXPECT_FALSE(prefill_is_sooner(other));
}

TEST(MixedDivision, TimesAreTheWorkOverTheRates) {
  const Estimate e = chunk_and_decodes(2048, 63, 8192);
  EXPECT_NEAR(e.chunk_us, 4.0 * 32 * 128 * 2048 * 7168 / 650e6, 1e-3 * e.chunk_us);
  EXPECT_NEAR(e.decode_us, 4.0 * 8 * 128 * 63 * 4096 / 3e6, 1e-3 * e.decode_us);
  AttentionParams window = step(3, 2048, 8192);
  window.window_left = 127;
  EXPECT_NEAR(estimate(window, kH100).chunk_us, 4.0 * 32 * 128 * 2048 * 128 / 650e6, 1e-2);
  EXPECT_NEAR(estimate(window, kH100).decode_us, 4.0 * 8 * 128 * 2 * 128 / 3e6, 1e-3);
}

TEST(MixedDivision, RowsOfNobodyChangeNothing) {
  AttentionParams padded = step(16, 512, 2048);
  padded.total_q = 4096;
  EXPECT_EQ(estimate(padded, kH100).chunk_us, chunk_and_decodes(512, 15, 2048).chunk_us);
  EXPECT_EQ(estimate(padded, kH100).decode_us, chunk_and_decodes(512, 15, 2048).decode_us);
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

TEST(MixedDivision, FollowsTheGpu) {
  EXPECT_NEAR(kH100.memory_bytes_per_us, 3.352e6, 1e3);
  EXPECT_NEAR(kH200.memory_bytes_per_us, 4.917e6, 1e3);
  const AttentionParams p = step(64, 2048, 8192);
  const Estimate h100 = estimate(p, kH100), h200 = estimate(p, kH200);
  EXPECT_EQ(h200.chunk_us, h100.chunk_us);
  EXPECT_NEAR(h200.decode_us / h100.decode_us, 3.352 / 4.917, 1e-3);
  const Estimate small = estimate(p, hopper::rates_of(78, 1'500'000, 1'600'000, 5120));  // 2 TB/s
  EXPECT_NEAR(small.chunk_us / h100.chunk_us, 132.0 * 1.98 / (78 * 1.5), 1e-6);
  EXPECT_GT(small.decode_us, h100.decode_us);
  // More decodes fit into one launch where memory is faster.
  const AttentionParams few = step(32, 512, 2048);
  EXPECT_FALSE(one_launch(estimate(few, kH100), false));
  EXPECT_TRUE(one_launch(estimate(few, hopper::rates_of(144, 1'980'000, 3'201'000, 8192)), false));
}

TEST(DecodePace, StepsFollowTheGpu) {
  EXPECT_NEAR(sm90_decode::step_ns(132, kH100), 5600, 30);
  EXPECT_NEAR(sm90_decode::step_ns(132, kH200), 5600 * 3.352 / 4.917, 20);
  EXPECT_NEAR(sm90_decode::step_ns(78, hopper::rates_of(78, 1'500'000, 1'600'000, 5120)), 5417, 60);
}

}  // namespace
}  // namespace attnbench::sm90_mixed
