// The cpu kv_append kernel with quantised caches: given and computed scales are checked element by element.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kTokens = 3, kHeads = 2, kDimQuantised = 6, kBlock = 4, kBlocks = 2;
constexpr int64_t kSlots[kTokens] = {5, -1, 2};

struct Quantised {
  OpParams op{};
  std::vector<float> key, value;
  std::vector<uint8_t> k_cache, v_cache;
  std::vector<float> given, k_scales, v_scales;
  KernelMessage message{};

  Quantised(DType k, DType v, uint64_t features) {
    for (int i = 0; i < kTokens * kHeads * kDimQuantised; ++i) {
      key.push_back(static_cast<float>((i * 37) % 23 - 11) * 0.3f);
      value.push_back(static_cast<float>((i * 29) % 19 - 9) * 1.7f);
    }
    for (int c = 0; c < kDimQuantised; ++c) key[c] = 0.0f;  // token 0, head 0: all zeros
    k_cache.assign(kBlocks * kBlock * kHeads * kDimQuantised * dtype_size(k), 0xab);
    v_cache.assign(kBlocks * kBlock * kHeads * kDimQuantised * dtype_size(v), 0xcd);
    for (int i = 0; i < kHeads * kDimQuantised; ++i) given.push_back(0.05f + 0.01f * static_cast<float>(i));
    k_scales.assign(kBlocks * kBlock * kHeads, std::numeric_limits<float>::quiet_NaN());
    v_scales = k_scales;
    op.op = Op::kKvAppend;
    KvAppendParams& p = op.kv_append = KvAppendParams{};
    p.features = kPagedKv | kFp32 | features;
    p.num_tokens = kTokens;
    p.num_heads_kv = kHeads;
    p.head_dim = p.head_dim_v = kDimQuantised;
    p.dtype_in = DType::kFp32;
    p.dtype_k = k;
    p.dtype_v = v;
    p.block_size = kBlock;
    p.num_blocks = kBlocks;
    p.key = key.data();
    p.value = value.data();
    p.key_stride_token = p.value_stride_token = kHeads * kDimQuantised;
    p.key_stride_head = p.value_stride_head = kDimQuantised;
    p.slot_mapping = kSlots;
    p.k_cache = k_cache.data();
    p.v_cache = v_cache.data();
    p.k_stride_block = p.v_stride_block = kBlock * kHeads * kDimQuantised;
    p.k_stride_token = p.v_stride_token = kHeads * kDimQuantised;
    p.k_stride_head = p.v_stride_head = kDimQuantised;
    p.k_scale = p.v_scale = {given.data(), kDimQuantised, 1, nullptr, kBlock * kHeads, kHeads, 1};
    p.k_scale.computed = k_scales.data();
    p.v_scale.computed = v_scales.data();
  }

  KernelStatus launch() {
    LaunchContext context{};
    context.num_threads = 2;
    if (const auto s = cpu::kKvAppend.supports(&op, &context, &message); s != KernelStatus::kOk) return s;
    return cpu::kKvAppend.launch(&op, &context, &message);
  }

  /// Checks every byte of a cache and every scale by the definition.
  void check(bool is_v) {
    const KvAppendParams& p = op.kv_append;
    const DType t = is_v ? p.dtype_v : p.dtype_k;
    const bool computed = (p.features & (is_v ? kVTokenScales : kKTokenScales)) != 0;
    std::vector<uint8_t> want(is_v ? v_cache.size() : k_cache.size(), is_v ? 0xcd : 0xab);
    std::vector<float> want_scales(k_scales.size(), std::numeric_limits<float>::quiet_NaN());
    for (int token = 0; token < kTokens; ++token) {
      const int64_t slot = kSlots[token];
      if (slot < 0) continue;
      for (int h = 0; h < kHeads; ++h) {
        const float* x = (is_v ? value : key).data() + (token * kHeads + h) * kDimQuantised;
        float amax = 0;
        for (int c = 0; c < kDimQuantised; ++c) amax = std::max(amax, std::abs(x[c]));
        const float row_scale = amax == 0 ? 1.0f
                                          : amax / (t == DType::kE4m3   ? 448.0f
                                                    : t == DType::kE5m2 ? 57344.0f
                                                                        : 127.0f);
        if (computed) want_scales[slot * kHeads + h] = row_scale;
        for (int c = 0; c < kDimQuantised; ++c) {
          const float scale = t == DType::kFp32 ? 1.0f : computed ? row_scale : given[h * kDimQuantised + c];
          store_float(t, want.data(), (slot * kHeads + h) * kDimQuantised + c, x[c] / scale);
        }
      }
    }
    EXPECT_EQ(is_v ? v_cache : k_cache, want);
    const std::vector<float>& scales = is_v ? v_scales : k_scales;
    for (std::size_t i = 0; i < scales.size(); ++i) {
      EXPECT_TRUE(scales[i] == want_scales[i] || (std::isnan(scales[i]) && std::isnan(want_scales[i]))) << i;
    }
  }
};

TEST(CpuKvAppendQuantise, EveryByteFollowsFromTheDefinition) {
  struct Kind {
    DType k, v;
    uint64_t features;
  };
  const Kind kinds[] = {
      {DType::kE4m3, DType::kE4m3, kE4m3Kv},
      {DType::kE4m3, DType::kE4m3, kE4m3Kv | kKTokenScales | kVTokenScales},
      {DType::kE5m2, DType::kE5m2, kE5m2Kv},
      {DType::kE5m2, DType::kE5m2, kE5m2Kv | kKTokenScales | kVTokenScales},
      {DType::kInt8, DType::kInt8, kInt8K | kInt8V},
      {DType::kInt8, DType::kInt8, kInt8K | kInt8V | kKTokenScales},
      {DType::kInt8, DType::kInt8, kInt8K | kInt8V | kKTokenScales | kVTokenScales},
      {DType::kInt8, DType::kFp32, kInt8K | kKTokenScales},  // mixed: V is not quantised
  };
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.features);
    Quantised q(kind.k, kind.v, kind.features);
    ASSERT_EQ(q.launch(), KernelStatus::kOk) << q.message.text;
    q.check(false);
    q.check(true);
  }
}

TEST(CpuKvAppendQuantise, ScalesAreRequired) {
  Quantised q(DType::kInt8, DType::kInt8, kInt8K | kInt8V);
  q.op.kv_append.v_scale.given = nullptr;
  EXPECT_EQ(q.launch(), KernelStatus::kBadArgument);
  EXPECT_STREQ(q.message.text, "cpu: scales of a quantised cache required, given null");
}

}  // namespace
}  // namespace attnbench
