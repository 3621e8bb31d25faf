// Append in the call, for the cpu kernel alone. A cache that is too small is refused before anything is
// written.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kDim = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Two sequences with one head: 3 and 2 keys, of which 2 and 1 are new, and one query each.
struct Call {
  OpParams op{};
  std::vector<float> k_new, v_new, k_cache, v_cache, q, out, lse, table;
  std::vector<int32_t> cu_q = {0, 1, 2}, cu_new = {0, 2, 3}, used = {3, 2}, blocks, leftpad = {0, 1};
  KernelMessage message{};

  explicit Call(bool paged) : blocks{1, 0, 2, 3} {
    for (int i = 0; i < 3 * kDim; ++i) {
      k_new.push_back(0.5f + static_cast<float>(i));
      v_new.push_back(100.0f + static_cast<float>(i));
    }
    k_cache.assign(8 * kDim, kNan);
    v_cache.assign(8 * kDim, kNan);
    q.assign(2 * kDim, 0.0f);
    out.assign(2 * kDim, kNan);
    lse.assign(2, kNan);
    op.op = Op::kAttention;
    AttentionParams& p = op.attention = AttentionParams{};
    p.features = kFp32 | kAppend | (paged ? kPagedKv : kContiguousKv);
    p.batch = 2;
    p.num_heads_q = p.num_heads_kv = 1;
    p.head_dim = p.head_dim_v = kDim;
    p.total_q = p.lse_stride_head = 2;
    p.max_seqlen_q = 1;
    p.max_seqlen_k = 3;
    p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kFp32;
    p.q = q.data();
    p.q_stride_token = p.q_stride_head = p.out_stride_token = p.out_stride_head = kDim;
    p.cu_seqlens_q = cu_q.data();
    p.k = p.k_cache = k_cache.data();
    p.v = p.v_cache = v_cache.data();
    p.k_stride_token = p.v_stride_token = p.k_stride_head = p.v_stride_head = kDim;
    p.seqused_k = used.data();
    if (paged) {  // blocks of two tokens, two blocks per sequence
      p.block_size = 2;
      p.block_table = blocks.data();
      p.block_table_stride = 2;
      p.num_blocks = 4;
      p.k_stride_block = p.v_stride_block = 2 * kDim;
    } else {  // rows of four tokens
      p.num_blocks = 2;
      p.cache_capacity = 4;
      p.cache_leftpad = leftpad.data();
      p.k_stride_block = p.v_stride_block = 4 * kDim;
    }
    p.window_left = p.window_right = -1;
    p.softmax_scale = 1.0f;
    p.k_new = k_new.data();
    p.v_new = v_new.data();
    p.k_new_stride_token = p.v_new_stride_token = p.k_new_stride_head = p.v_new_stride_head = kDim;
    p.cu_seqlens_new = cu_new.data();
    p.total_new = 3;
    p.out = out.data();
    p.lse = lse.data();
    // The old keys: row 0 of each sequence.
    for (const int row : {paged ? 2 : 0, paged ? 4 : 5}) {
      for (int c = 0; c < kDim; ++c) k_cache[row * kDim + c] = v_cache[row * kDim + c] = 1.0f;
    }
  }

  KernelStatus launch() {
    LaunchContext context{};
    context.num_threads = 2;
    if (const auto s = cpu::kAttention.supports(&op, &context, &message); s != KernelStatus::kOk) return s;
    return cpu::kAttention.launch(&op, &context, &message);
  }

  /// The refusal of a call that `change` makes wrong. The cache must not change.
  template <class Change>
  std::string refusal(Change change) {
    change(*this);
    EXPECT_EQ(launch(), KernelStatus::kBadArgument);
    int written = 0;
    for (const float x : k_cache) written += !std::isnan(x);
    for (const float x : v_cache) written += !std::isnan(x);
    EXPECT_EQ(written, 2 * 2 * kDim) << "only the old keys";
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
    return message.text;
  }
};

TEST(CpuAppend, NewRowsGoBehindTheOldOnes) {
  for (const bool paged : {false, true}) {
    Call c(paged);
    ASSERT_EQ(c.launch(), KernelStatus::kOk) << c.message.text;
    // Sequence 0, rows 1 and 2; sequence 1, row 1. They are in blocks 1, 0, 2, or in cache rows with left
    // padding 0 and 1.
    const int places[3] = {paged ? 3 : 1, paged ? 0 : 2, paged ? 5 : 6};
    for (int i = 0; i < 3; ++i) {
      for (int ch = 0; ch < kDim; ++ch) {
        EXPECT_EQ(c.k_cache[places[i] * kDim + ch], c.k_new[i * kDim + ch]) << paged << i;
        EXPECT_EQ(c.v_cache[places[i] * kDim + ch], c.v_new[i * kDim + ch]) << paged << i;
      }
    }
    int written = 0;
    for (const float x : c.k_cache) written += !std::isnan(x);
    EXPECT_EQ(written, 5 * kDim);
    EXPECT_FLOAT_EQ(c.lse[0], std::log(3.0f));  // q = 0: all keys have equal weights
    EXPECT_FLOAT_EQ(c.out[0], (1.0f + 100.0f + 104.0f) / 3);
    EXPECT_FLOAT_EQ(c.out[kDim], (1.0f + 108.0f) / 2);
  }
}

TEST(CpuAppend, SmallCachesAreRefusedBeforeAnythingIsWritten) {
  EXPECT_EQ(Call(false).refusal([](Call& c) { c.op.attention.cache_capacity = 2; }),
            "cpu: a cache of max_seqlen_k 3 tokens per sequence required for append, given 2");
  EXPECT_EQ(Call(true).refusal([](Call& c) { c.op.attention.block_table_stride = 1; }),
            "cpu: a block_table row for max_seqlen_k 3 tokens required, given 1 blocks of 2");
  // Only the tensors show this: the padding of the last sequence leaves no room.
  EXPECT_EQ(Call(false).refusal([](Call& c) { c.leftpad[1] = 3; }),
            "cpu: sequence 1: a cache of 5 tokens required for its keys with the new ones, given 4");
  EXPECT_EQ(Call(true).refusal([](Call& c) {
    c.op.attention.block_table_stride = 1;
    c.op.attention.max_seqlen_k = 2;
  }),
            "cpu: sequence 0: a cache of 3 tokens required for its keys with the new ones, given 2");
  EXPECT_EQ(Call(true).refusal([](Call& c) { c.blocks[2] = 4; }),
            "cpu: sequence 1: new row 1 in block 0..3 required, given 4");
  EXPECT_EQ(Call(true).refusal([](Call& c) { c.cu_new[2] = 5; }),
            "cpu: sequence 1: 0..2 new tokens required, as seqused_k counts them, given 3");
}

TEST(CpuAppend, RotaryTablesThatEndTooEarlyAreRefused) {
  const auto with_tables = [](Call& c, int positions) {
    c.table.assign(static_cast<std::size_t>(positions) * 2, 0.5f);
    c.op.attention.features |= kRotary;
    c.op.attention.rotary = {c.table.data(), c.table.data(), 4, 0, positions, {}};
  };
  EXPECT_EQ(Call(true).refusal([&](Call& c) { with_tables(c, 2); }),
            "cpu: sequence 0: queries and keys at positions 0..1 of the rotary tables required, given 2..2");
  EXPECT_EQ(Call(true).refusal([&](Call& c) {
    with_tables(c, 3);
    c.op.attention.rotary.dim = 5;
  }),
            "cpu: an even rotary dim from 2 to head_dim 4 required, given 5");
  Call good(true);
  with_tables(good, 3);
  EXPECT_EQ(good.launch(), KernelStatus::kOk) << good.message.text;
  const auto without_new_tokens = [&](Call& c, int positions) {
    with_tables(c, positions);
    c.cu_new = {0, 0, 0};
    c.op.attention.total_new = 0;
    c.op.attention.features |= kRotaryQ;
    c.op.attention.rotary.q_position = RotaryQ::kFromCacheSeqlens;
  };
  EXPECT_EQ(Call(true).refusal([&](Call& c) { without_new_tokens(c, 3); }),
            "cpu: sequence 0: queries and keys at positions 0..2 of the rotary tables required, given 3..3");
  Call longer(true);
  without_new_tokens(longer, 4);
  EXPECT_EQ(longer.launch(), KernelStatus::kOk) << longer.message.text;
}

TEST(CpuAppend, UnknownPositionsOfQueriesAreRefused) {
  const auto refusal = [](uint64_t features, int rule) {
    return Call(true).refusal([&](Call& c) {
      c.table.assign(6, 0.5f);
      c.op.attention.features |= features;
      c.op.attention.rotary = {c.table.data(), c.table.data(), 4, 0, 3, static_cast<RotaryQ>(rule)};
    });
  };
  EXPECT_EQ(refusal(kRotaryQ, 2), "cpu: rotary required for rotary_q, given none");
  EXPECT_EQ(refusal(kRotary | kRotaryQ, 0), "cpu: rotary.q_position 1..2 required, given 0");
  EXPECT_EQ(refusal(kRotary | kRotaryQ, 3), "cpu: rotary.q_position 1..2 required, given 3");
  EXPECT_EQ(refusal(kRotary, -1), "cpu: rotary.q_position 0..2 required, given -1");
}

TEST(CpuAppend, RefusesWhatContradictsItself) {
  EXPECT_EQ(Call(true).refusal([](Call& c) {
    c.op.attention.features &= ~uint64_t{kAppend};
    c.op.attention.features |= kRotary;
  }),
            "cpu: append or rotary_cached required for rotary, given none");
  EXPECT_EQ(Call(true).refusal([](Call& c) { c.op.attention.features ^= kPagedKv | kPackedKv; }),
            "cpu: paged or contiguous KV required for append, given packed");
  EXPECT_EQ(Call(true).refusal([](Call& c) { c.op.attention.cu_seqlens_new = nullptr; }),
            "cpu: cu_seqlens_new required for append, given null");
}

}  // namespace
}  // namespace attnbench
