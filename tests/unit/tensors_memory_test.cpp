#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "harness/tensors/workload.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

Case small_case(Op op = Op::kAttention) {
  Case c;
  c.params.op = op;
  c.params.kv = KvSource::kPaged;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = op == Op::kKvAppend ? 4 : 2;
  c.params.head_dim = 8;
  c.params.dtype = DType::kFp32;
  c.params.block_size = 4;
  c.params.seqs = {{2, 6}, {1, 3}};
  return c;
}

TEST(Workload, RotaryQIsAFeatureWhereAQueryLeavesItsDiagonal) {
  Case c = small_case();
  c.params.append = true;
  c.params.rotary = Rotary::kNeox;
  const auto leaves = [&](RotaryQ rule, int32_t new_tokens, int32_t queries) {
    c.params.rotary_q = rule;
    c.params.new_tokens = new_tokens;
    c.params.seqs[0].q = queries;
    const AttentionParams p = Workload::shape_params(c).attention;
    EXPECT_EQ(p.rotary.q_position, rule) << "a wrapper must see the rule in any case";
    return (p.features & kRotaryQ) != 0;
  };
  EXPECT_FALSE(leaves(RotaryQ::kDiagonal, 1, 2));
  EXPECT_FALSE(leaves(RotaryQ::kFromCacheSeqlens, 0, 2));
  EXPECT_TRUE(leaves(RotaryQ::kFromCacheSeqlens, 1, 2));
  EXPECT_FALSE(leaves(RotaryQ::kAtCacheSeqlens, 0, 1));
  EXPECT_TRUE(leaves(RotaryQ::kAtCacheSeqlens, 0, 2));
  EXPECT_TRUE(leaves(RotaryQ::kAtCacheSeqlens, 2, 1));
}

TEST(Workload, UnreadSlotsAreNanAndReadOnesFinite) {
  const auto device = open_device("cpu", 1);
  const Case c = small_case();
  const Workload w(*device, c);
  const AttentionParams p = w.params().attention;
  for (std::size_t slot = 0; slot < w.plan().kv_owners.size(); ++slot) {
    const int64_t row =
        static_cast<int64_t>(slot) / 4 * p.k_stride_block + static_cast<int64_t>(slot) % 4 * p.k_stride_token;
    const float x = static_cast<const float*>(p.k)[row + p.k_stride_head];
    EXPECT_EQ(std::isnan(x), w.plan().kv_owners[slot].seq < 0) << slot;
  }
  EXPECT_TRUE(std::isnan(static_cast<const float*>(p.q)[p.total_q * p.q_stride_token]))
      << "the row behind the last query";
}

TEST(Workload, BehindTheLastSequenceStandsWhatLooksLikeAnother) {
  const auto device = open_device("cpu", 1);
  const Workload w(*device, small_case());
  const AttentionParams p = w.params().attention;
  EXPECT_EQ(p.cu_seqlens_q[p.batch + 1], p.cu_seqlens_q[p.batch] + 1);
  EXPECT_EQ(p.seqused_k[p.batch], 1);
  EXPECT_EQ(p.block_table[p.batch * p.block_table_stride], 0);
  const Workload append(*device, small_case(Op::kKvAppend));
  const KvAppendParams a = append.params().kv_append;
  EXPECT_EQ(a.slot_mapping[a.num_tokens], 0);
}

TEST(Workload, PaddedStridesAreAllDifferentAndLeaveNanBetweenRows) {
  const auto device = open_device("cpu", 1);
  LayoutVariant layout;
  layout.padded_strides = true;
  Workload w(*device, small_case(), layout);
  const AttentionParams p = w.params().attention;
  const AttentionParams dense = Workload::shape_params(small_case()).attention;
  EXPECT_GT(p.q_stride_head, p.head_dim);
  EXPECT_NE(p.q_stride_head, p.out_stride_head);
  EXPECT_NE(p.q_stride_token, p.out_stride_token);
  EXPECT_NE(p.k_stride_block, p.v_stride_block);
  EXPECT_NE(p.k_stride_token, p.v_stride_token);
  EXPECT_GT(p.k_stride_block, p.block_size * p.k_stride_token);
  EXPECT_GT(p.lse_stride_head, p.total_q);
  EXPECT_EQ(dense.k_stride_block, dense.v_stride_block);
  EXPECT_EQ(dense.q_stride_token, int64_t{p.num_heads_q} * p.head_dim);
  for (int64_t i = p.head_dim; i < p.q_stride_head; ++i)
    EXPECT_TRUE(std::isnan(static_cast<const float*>(p.q)[i])) << i;
  EXPECT_FALSE(std::isnan(static_cast<const float*>(p.q)[p.q_stride_head]));
}

TEST(Workload, OutputsOfPaddedStridesAreReadWithoutPaddingAndStrayWritesAreSeen) {
  const auto device = open_device("cpu", 1);
  LayoutVariant layout;
  layout.padded_strides = true;
  Workload w(*device, small_case(), layout);
  w.reset_outputs();
  const AttentionParams p = w.params().attention;
  auto* out = static_cast<float*>(p.out);
  for (int64_t t = 0; t < p.total_q; ++t) {
    for (int64_t h = 0; h < p.num_heads_q; ++h) {
      for (int64_t c = 0; c < p.head_dim; ++c)
        out[t * p.out_stride_token + h * p.out_stride_head + c] = static_cast<float>(100 * t + 10 * h + c);
      p.lse[h * p.lse_stride_head + t] = static_cast<float>(10 * h + t);
    }
  }
  HostOutputs right = w.download_outputs();
  EXPECT_EQ(right.stray, "");
  ASSERT_EQ(right.out.size(), static_cast<std::size_t>(p.total_q * p.num_heads_q * p.head_dim) * 4);
  EXPECT_EQ(load_float(DType::kFp32, right.out.data(), (2 * 4 + 3) * 8 + 5), 235.0f);
  EXPECT_EQ(right.lse[3 * 3 + 2], 32.0f);
  p.lse[p.total_q] = 0.0f;
  EXPECT_THAT(w.download_outputs().stray, HasSubstr("lse"));
  out[p.head_dim] = 0.0f;
  w.reset_outputs();
  EXPECT_EQ(w.download_outputs().stray, "");
  out[p.head_dim] = 0.0f;
  EXPECT_THAT(w.download_outputs().stray, HasSubstr("out"));
}

TEST(Workload, OutputsAreReadWithoutRowsOfNoQueryAndWritesToThemAreSeen) {
  const auto device = open_device("cpu", 1);
  Case item = small_case();
  item.params.gap_queries = 2;
  const int64_t queries = item.params.seqs[0].q;
  for (const bool token_major : {false, true}) {
    item.params.out_lse_token_major = token_major;
    Workload w(*device, item, {.lead_rows = 1});
    const AttentionParams p = w.params().attention;
    const auto lse = [&](int64_t row, int64_t head) -> float& {
      return p.lse[token_major ? row * p.lse_stride_token + head : head * p.lse_stride_head + row];
    };
    const auto out = [&](int64_t row) -> float& {
      return static_cast<float*>(p.out)[row * p.out_stride_token];
    };
    w.reset_outputs();
    out(0) = lse(0, 0) = 1.0f;  // leading rows may hold anything
    out(1) = 2.0f;
    lse(1, 1) = 3.0f;
    const HostOutputs right = w.download_outputs();
    EXPECT_EQ(right.unused_written, "");
    int64_t total = 0;
    for (const SeqLen& s : item.params.seqs) total += s.q;
    ASSERT_EQ(right.lse.size(), static_cast<std::size_t>(total * p.num_heads_q));
    ASSERT_EQ(right.out.size(), static_cast<std::size_t>(total * p.num_heads_q * p.head_dim) * 4);
    EXPECT_EQ(load_float(DType::kFp32, right.out.data(), 0), 2.0f);
    EXPECT_EQ(right.lse[static_cast<std::size_t>(total)], 3.0f);
    lse(1 + queries, 1) = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(w.download_outputs().unused_written, HasSubstr("LSE of row"));
    w.reset_outputs();
    EXPECT_EQ(w.download_outputs().unused_written, "");
    out(1 + queries) = 0.0f;
    EXPECT_THAT(w.download_outputs().unused_written, HasSubstr("behind the queries of seq 0"));
  }
}

TEST(Workload, OutputsAreNanBeforeALaunch) {
  const auto device = open_device("cpu", 1);
  Workload w(*device, small_case());
  w.reset_outputs();
  const HostOutputs h = w.download_outputs();
  for (std::size_t i = 0; i < h.out.size() / 4; ++i) {
    EXPECT_TRUE(std::isnan(load_float(DType::kFp32, h.out.data(), static_cast<int64_t>(i))));
  }
  for (const float x : h.lse) EXPECT_TRUE(std::isnan(x));
}

TEST(Workload, SeesWritesOutsideOutputsAndIntoInputs) {
  const auto device = open_device("cpu", 1);
  {
    const Workload w(*device, small_case());
    EXPECT_FALSE(w.guard_damage() || w.input_damage());
    static_cast<float*>(w.params().attention.out)[3 * 4 * 8] = 1.0f;
    ASSERT_TRUE(w.guard_damage());
    EXPECT_THAT(*w.guard_damage(), HasSubstr("past the end of out, starting right after it"));
  }
  {
    const Workload w(*device, small_case());
    w.params().attention.lse[-1] = 1.0f;
    EXPECT_THAT(w.guard_damage().value_or(""),
                HasSubstr("4 bytes written before the start of lse, ending right before it"));
  }
  {
    const Workload w(*device, small_case());
    const_cast<float*>(static_cast<const float*>(w.params().attention.q))[5] += 1.0f;
    EXPECT_THAT(w.input_damage().value_or(""), HasSubstr("input q was overwritten"));
  }
}

TEST(Workload, AppendResetsItsCaches) {
  const auto device = open_device("cpu", 1);
  Workload w(*device, small_case(Op::kKvAppend));
  const HostOutputs before = w.download_outputs();
  std::memset(w.params().kv_append.k_cache, 0, 64);
  EXPECT_NE(w.download_outputs().k_cache, before.k_cache);
  w.reset_outputs();
  EXPECT_EQ(w.download_outputs().k_cache, before.k_cache);
  EXPECT_FALSE(w.guard_damage() || w.input_damage()) << "a written cache is no damage";
}

TEST(Workload, SameValuesInEveryLayout) {
  const auto device = open_device("cpu", 1);
  Case paged = small_case();
  Case packed = paged;
  packed.params.kv = KvSource::kPacked;
  Case hnd = paged;
  hnd.params.kv_layout = KvLayout::kHnd;
  const Workload a(*device, paged), b(*device, packed), c(*device, hnd);
  const auto value = [](const Workload& w, std::size_t seq, int pos, int head) {
    const AttentionParams p = w.params().attention;
    const float* k = static_cast<const float*>(p.k);
    if (!p.block_table) return k[(p.cu_seqlens_k[seq] + pos) * p.k_stride_token + head * p.k_stride_head];
    const int64_t block = p.block_table[seq * static_cast<std::size_t>(p.block_table_stride) +
                                        static_cast<std::size_t>(pos / 4)];
    return k[block * p.k_stride_block + pos % 4 * p.k_stride_token + head * p.k_stride_head];
  };
  for (int pos = 0; pos < 6; ++pos) {
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(value(a, 0, pos, h), value(b, 0, pos, h));
      EXPECT_EQ(value(a, 0, pos, h), value(c, 0, pos, h));
    }
  }
}

}  // namespace
}  // namespace attnbench
