// The cpu kernels with shared scales, O in e4m3, new rows for a quantised cache, and rows that hold a value and
// its key: small launches whose results are computed here by hand.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kWidth = 4;

/// Attention of one query over one key per head, so that O is V: packed or in a contiguous cache of two rows.
struct OneKey {
  OpParams op{};
  std::vector<float> q, out_floats;
  std::vector<uint8_t> k, v, out;
  std::vector<float> lse, q_descale, k_descale, v_descale;
  std::vector<int32_t> cu{0, 1}, used{1};
  float out_scale = 1.0f;
  KernelMessage message{};

  explicit OneKey(uint64_t features, int heads = 2) {
    const auto n = static_cast<std::size_t>(heads * kWidth);
    q.assign(n, 1.0f);
    out_floats.assign(n, -1.0f);
    out.assign(n, 0x7f);
    lse.assign(static_cast<std::size_t>(heads), -1.0f);
    for (std::size_t i = 0; i < n; ++i) {
      k.push_back(float_to_e4m3(0.5f));
      v.push_back(float_to_e4m3(static_cast<float>(i) - 3.0f));
    }
    op.op = Op::kAttention;
    AttentionParams& p = op.attention = AttentionParams{};
    p.features = kFp32 | kE4m3Kv | features;
    p.batch = 1;
    p.num_heads_q = p.num_heads_kv = heads;
    p.head_dim = p.head_dim_v = kWidth;
    p.total_q = p.max_seqlen_q = p.max_seqlen_k = 1;
    p.dtype_q = DType::kFp32;
    p.dtype_k = p.dtype_v = p.dtype_k_new = p.dtype_v_new = DType::kE4m3;
    p.dtype_out = features & kE4m3Out ? DType::kE4m3 : DType::kFp32;
    p.q = q.data();
    p.k = p.k_cache = k.data();
    p.v = p.v_cache = v.data();
    p.out = features & kE4m3Out ? static_cast<void*>(out.data()) : out_floats.data();
    p.lse = lse.data();
    p.cu_seqlens_q = cu.data();
    p.seqused_k = used.data();
    if (features & kContiguousKv) {
      p.num_blocks = 1;
      p.cache_capacity = 1;
    } else {
      p.features |= kPackedKv;
      p.cu_seqlens_k = cu.data();
    }
    p.q_stride_token = p.k_stride_token = p.v_stride_token = p.out_stride_token = heads * kWidth;
    p.k_stride_block = p.v_stride_block = heads * kWidth;
    p.q_stride_head = p.k_stride_head = p.v_stride_head = p.out_stride_head = kWidth;
    p.lse_stride_head = 1;
    p.softmax_scale = 0.5f;
    p.window_left = p.window_right = -1;
    p.out_scale = &out_scale;
    k_descale.assign(static_cast<std::size_t>(heads), 1.0f);
    v_descale.assign(static_cast<std::size_t>(heads * kWidth), 1.0f);
    p.k_descale = k_descale.data();
    p.v_descale = v_descale.data();
    p.k_descale_stride_outer = p.v_descale_stride_outer = heads;
    p.k_descale_stride_head = p.v_descale_stride_head = 1;
  }

  KernelStatus launch() {
    LaunchContext context{};
    context.num_threads = 1;
    if (const auto s = cpu::kAttention.supports(&op, &context, &message); s != KernelStatus::kOk) return s;
    std::vector<float> workspace(cpu::kAttention.workspace_bytes(&op, &context) / sizeof(float) + 64);
    context.workspace = workspace.data();
    context.workspace_bytes = workspace.size() * sizeof(float);
    return cpu::kAttention.launch(&op, &context, &message);
  }
};

TEST(CpuScales, OneDescaleOfATensorServesAllHeads) {
  OneKey run(0);
  run.op.attention.k_descale_stride_outer = run.op.attention.k_descale_stride_head = 0;
  run.op.attention.v_descale_stride_outer = run.op.attention.v_descale_stride_head = 0;
  run.k_descale = {2.0f, 1e9f};
  run.v_descale = {0.5f, 1e9f};
  run.op.attention.k_descale = run.k_descale.data();
  run.op.attention.v_descale = run.v_descale.data();
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  for (int i = 0; i < 2 * kWidth; ++i)
    EXPECT_EQ(run.out_floats[static_cast<std::size_t>(i)], 0.5f * (i - 3)) << i;
  // q.k = 4 * 1 * 0.5, times the descale 2 and softmax_scale 0.5.
  EXPECT_FLOAT_EQ(run.lse[0], 2.0f);
  EXPECT_FLOAT_EQ(run.lse[1], 2.0f);
}

TEST(CpuScales, DescalesOfVPerChannel) {
  OneKey run(kVChannelScales);
  AttentionParams& p = run.op.attention;
  p.v_descale_stride_outer = 0;
  p.v_descale_stride_head = kWidth;
  for (int i = 0; i < 2 * kWidth; ++i)
    run.v_descale[static_cast<std::size_t>(i)] = 1.0f + static_cast<float>(i);
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  for (int i = 0; i < 2 * kWidth; ++i)
    EXPECT_EQ(run.out_floats[static_cast<std::size_t>(i)], static_cast<float>((i - 3) * (1 + i))) << i;
}

TEST(CpuScales, OutputInE4m3IsDividedRoundedAndSaturates) {
  for (const uint64_t splits : {uint64_t{0}, uint64_t{kSplitKv}}) {
    OneKey run(kE4m3Out | splits);
    run.op.attention.num_splits = splits ? 2 : 0;
    run.out_scale = 0.006f;  // 3 / 0.006 = 500 is past 448
    ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
    for (int i = 0; i < 2 * kWidth; ++i) {
      EXPECT_EQ(run.out[static_cast<std::size_t>(i)], float_to_e4m3(static_cast<float>(i - 3) / 0.006f)) << i;
    }
    EXPECT_EQ(e4m3_to_float(run.out[0]), -448.0f);
  }
}

TEST(CpuScales, ARowWithoutKeysIsZeroInE4m3) {
  OneKey run(kE4m3Out);
  run.used[0] = 0;
  run.op.attention.features |= kPartialKv;
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  for (const uint8_t x : run.out) EXPECT_EQ(x, 0);
}

TEST(CpuScales, NewRowsAreQuantisedByTheDescalesThatTheyAreReadWith) {
  OneKey run(kContiguousKv | kAppend | kAppendQuantised);
  AttentionParams& p = run.op.attention;
  const std::vector<float> k_new = {0.1f, 0.2f, 0.3f, 1000.0f, -0.1f, -0.2f, 5.0f, -1000.0f};
  const std::vector<float> v_new = {1.03f, 2.0f, -7.7f, 4.0f, 5.0f, 6.0f, 0.0f, -8.0f};
  std::vector<int32_t> cu_new{0, 1};
  p.k_new = k_new.data();
  p.v_new = v_new.data();
  p.dtype_k_new = p.dtype_v_new = DType::kFp32;
  p.k_new_stride_token = p.v_new_stride_token = 2 * kWidth;
  p.k_new_stride_head = p.v_new_stride_head = kWidth;
  p.cu_seqlens_new = cu_new.data();
  p.total_new = 1;
  run.k_descale = {0.5f, 2.0f};
  run.v_descale = {0.25f, 3.0f};
  p.k_descale = run.k_descale.data();
  p.v_descale = run.v_descale.data();
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  for (std::size_t i = 0; i < 2 * kWidth; ++i) {
    const std::size_t h = i / kWidth;
    EXPECT_EQ(run.k[i], float_to_e4m3(k_new[i] / run.k_descale[h])) << i;
    EXPECT_EQ(run.v[i], float_to_e4m3(v_new[i] / run.v_descale[h])) << i;
    EXPECT_FLOAT_EQ(run.out_floats[i], e4m3_to_float(run.v[i]) * run.v_descale[h]) << i;
  }

  // In the type of the cache they are copied.
  std::vector<uint8_t> stored;
  for (int i = 0; i < 2 * kWidth; ++i) stored.push_back(static_cast<uint8_t>(0x10 + i));
  p.k_new = p.v_new = stored.data();
  p.dtype_k_new = p.dtype_v_new = DType::kE4m3;
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  EXPECT_EQ(run.k, stored);
  EXPECT_EQ(run.v, stored);

  p.dtype_k_new = DType::kBf16;
  EXPECT_EQ(run.launch(), KernelStatus::kBadArgument);
  EXPECT_STREQ(run.message.text,
               "cpu: new rows in fp32 or in the type of the cache required, given bf16 and e4m3");
}

TEST(CpuScales, MergedStatesInE4m3) {
  const std::vector<float> states = {1.0f, 2.0f, 3.0f, 100.0f};
  const std::vector<float> lse = {0.7f};
  std::vector<uint8_t> out(4, 0x7f);
  float out_lse = 0, scale = 0.21f;
  OpParams op{};
  op.op = Op::kMergeStates;
  MergeStatesParams& p = op.merge_states = MergeStatesParams{};
  p.features = kFp32 | kE4m3Out;
  p.num_states = p.num_heads = 1;
  p.head_dim = 4;
  p.dtype_partial = DType::kFp32;
  p.dtype_out = DType::kE4m3;
  p.num_rows = 1;
  p.partial_out = states.data();
  p.partial_lse = lse.data();
  p.out = out.data();
  p.out_scale = &scale;
  p.out_lse = &out_lse;
  LaunchContext context{};
  context.num_threads = 1;
  KernelMessage message{};
  ASSERT_EQ(cpu::kMergeStates.supports(&op, &context, &message), KernelStatus::kOk) << message.text;
  ASSERT_EQ(cpu::kMergeStates.launch(&op, &context, &message), KernelStatus::kOk) << message.text;
  for (std::size_t c = 0; c < 4; ++c) EXPECT_EQ(out[c], float_to_e4m3(states[c] / scale)) << c;
  EXPECT_EQ(e4m3_to_float(out[3]), 448.0f);

  p.out_scale = nullptr;
  EXPECT_EQ(cpu::kMergeStates.launch(&op, &context, &message), KernelStatus::kBadArgument);
  p.dtype_out = DType::kFp32;
  EXPECT_EQ(cpu::kMergeStates.supports(&op, &context, &message), KernelStatus::kBadArgument);
  EXPECT_STREQ(message.text, "cpu: dtype_out e4m3 required with e4m3_out, given fp32");
}

/// A kv_append of two tokens, one head, keys of 2 channels and values of 3, into rows of both.
struct OneRow {
  std::vector<float> key{1, 2, 30, 40}, value{-1, -2, -3, 50, 60, 70}, scale{0.5f};
  std::vector<int64_t> slots{3, 0};
  std::vector<uint8_t> cache = std::vector<uint8_t>(4 * 5 + 8, 0xee);
  OpParams op{};
  KernelMessage message{};

  OneRow() {
    op.op = Op::kKvAppend;
    KvAppendParams& p = op.kv_append = KvAppendParams{};
    p.features = kPagedKv | kFp32 | kE4m3Kv | kHeadDimV | kOneRow;
    p.num_tokens = 2;
    p.num_heads_kv = 1;
    p.head_dim = 2;
    p.head_dim_v = 3;
    p.dtype_in = DType::kFp32;
    p.dtype_k = p.dtype_v = DType::kE4m3;
    p.block_size = 2;
    p.num_blocks = 2;
    p.key = key.data();
    p.value = value.data();
    p.key_stride_token = p.key_stride_head = 2;
    p.value_stride_token = p.value_stride_head = 3;
    p.slot_mapping = slots.data();
    p.v_cache = cache.data();
    p.k_cache = cache.data() + 3;
    p.k_stride_block = p.v_stride_block = 10;
    p.k_stride_token = p.v_stride_token = p.k_stride_head = p.v_stride_head = 5;
    p.k_scale.given = p.v_scale.given = scale.data();
  }

  KernelStatus launch() {
    LaunchContext context{};
    context.num_threads = 1;
    if (const auto s = cpu::kKvAppend.supports(&op, &context, &message); s != KernelStatus::kOk) return s;
    return cpu::kKvAppend.launch(&op, &context, &message);
  }
};

TEST(CpuScales, AValueAndItsKeyInOneRow) {
  OneRow run;
  ASSERT_EQ(run.launch(), KernelStatus::kOk) << run.message.text;
  std::vector<uint8_t> want(run.cache.size(), 0xee);
  const auto put = [&](std::size_t slot, std::vector<float> row) {
    for (std::size_t c = 0; c < row.size(); ++c) want[slot * 5 + c] = float_to_e4m3(row[c] / 0.5f);
  };
  put(3, {-1, -2, -3, 1, 2});
  put(0, {50, 60, 70, 30, 40});
  EXPECT_EQ(run.cache, want);
}

TEST(CpuScales, OneRowIsRefusedWhereKeysStandElsewhere) {
  OneRow run;
  run.op.kv_append.k_cache = run.cache.data() + 2;
  EXPECT_EQ(run.launch(), KernelStatus::kBadArgument);
  EXPECT_STREQ(run.message.text,
               "cpu: k_cache head_dim_v elements behind v_cache required of one row, given another");
  OneRow strides;
  strides.op.kv_append.k_stride_token = 6;
  EXPECT_EQ(strides.launch(), KernelStatus::kBadArgument);
  OneRow width;
  width.op.kv_append.features &= ~uint64_t{kHeadDimV};
  EXPECT_EQ(width.launch(), KernelStatus::kBadArgument);
  EXPECT_STREQ(width.message.text,
               "cpu: head_dim_v equal to head_dim 2 required without feature head_dim_v, given 3");
}

}  // namespace
}  // namespace attnbench
