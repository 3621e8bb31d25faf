// The cpu kv_append kernel: the whole cache is compared, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kTokensPlain = 7;
constexpr int kHeadsPlain = 3;
constexpr int kDimPlain = 5;
constexpr int kBlockSizePlain = 4;
constexpr int kBlocksPlain = 6;

struct Append {
  OpParams params{};
  std::vector<uint8_t> key, value, k_cache, v_cache;
  std::vector<int64_t> slots;
  KernelMessage message{};

  Append(DType t, bool hnd, std::vector<int64_t> slot_mapping) : slots(std::move(slot_mapping)) {
    const std::size_t size = dtype_size(t);
    key.resize(kTokensPlain * kHeadsPlain * kDimPlain * size);
    value.resize(key.size());
    k_cache.resize(kBlocksPlain * kBlockSizePlain * kHeadsPlain * kDimPlain * size);
    v_cache.resize(k_cache.size());
    for (std::size_t i = 0; i < key.size(); ++i) {
      key[i] = static_cast<uint8_t>(i * 37 + 11);
      value[i] = static_cast<uint8_t>(i * 53 + 200);
    }
    for (std::size_t i = 0; i < k_cache.size(); ++i) {
      k_cache[i] = static_cast<uint8_t>(i * 7);
      v_cache[i] = static_cast<uint8_t>(i * 13 + 1);
    }
    params.op = Op::kKvAppend;
    KvAppendParams& p = params.kv_append;
    p = {};
    p.features = t == DType::kFp32 ? kFp32 : t == DType::kFp16 ? kFp16 : kBf16;
    p.features |= kPagedKv;
    if (hnd) p.features |= kHnd;
    p.num_tokens = static_cast<int64_t>(slots.size());
    p.num_heads_kv = kHeadsPlain;
    p.head_dim = p.head_dim_v = kDimPlain;
    p.dtype_in = p.dtype_k = p.dtype_v = t;
    p.block_size = kBlockSizePlain;
    p.num_blocks = kBlocksPlain;
    p.key = key.data();
    p.value = value.data();
    p.key_stride_token = p.value_stride_token = kHeadsPlain * kDimPlain;
    p.key_stride_head = p.value_stride_head = kDimPlain;
    p.slot_mapping = slots.data();
    p.k_cache = k_cache.data();
    p.v_cache = v_cache.data();
    p.k_stride_block = p.v_stride_block = kBlockSizePlain * kHeadsPlain * kDimPlain;
    p.k_stride_token = p.v_stride_token = hnd ? kDimPlain : kHeadsPlain * kDimPlain;
    p.k_stride_head = p.v_stride_head = hnd ? kBlockSizePlain * kDimPlain : kDimPlain;
  }

  KernelStatus supports() {
    LaunchContext context{};
    return cpu::kKvAppend.supports(&params, &context, &message);
  }
  KernelStatus launch(int threads) {
    LaunchContext context{};
    context.num_threads = threads;
    return cpu::kKvAppend.launch(&params, &context, &message);
  }
};

/// The expected cache, computed element by element.
std::vector<uint8_t> expected(const std::vector<uint8_t>& before, const std::vector<uint8_t>& from,
                              std::size_t size, bool hnd, const std::vector<int64_t>& slots) {
  std::vector<uint8_t> after = before;
  for (std::size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    for (int h = 0; h < kHeadsPlain; ++h) {
      for (int d = 0; d < kDimPlain; ++d) {
        const int64_t block = slots[t] / kBlockSizePlain;
        const int64_t row = slots[t] % kBlockSizePlain;
        const int64_t to = hnd ? ((block * kHeadsPlain + h) * kBlockSizePlain + row) * kDimPlain + d
                               : ((block * kBlockSizePlain + row) * kHeadsPlain + h) * kDimPlain + d;
        std::memcpy(&after[to * size], &from[((t * kHeadsPlain + h) * kDimPlain + d) * size], size);
      }
    }
  }
  return after;
}

TEST(CpuKvAppend, CopiesBitsAndTouchesNothingElse) {
  const std::vector<int64_t> slots = {0, 23, -1, 9, 10, -1, 4};
  for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const bool hnd : {false, true}) {
      for (const int threads : {1, 2, 5}) {
        Append a(t, hnd, slots);
        const auto k = expected(a.k_cache, a.key, dtype_size(t), hnd, slots);
        const auto v = expected(a.v_cache, a.value, dtype_size(t), hnd, slots);
        ASSERT_EQ(a.supports(), KernelStatus::kOk) << a.message.text;
        ASSERT_EQ(a.launch(threads), KernelStatus::kOk) << a.message.text;
        EXPECT_EQ(a.k_cache, k);
        EXPECT_EQ(a.v_cache, v);
      }
    }
  }
}

TEST(CpuKvAppend, BadSlotIsNamedAndNothingIsWritten) {
  for (const int64_t bad : {int64_t{24}, int64_t{-2}, int64_t{1} << 40}) {
    Append a(DType::kBf16, false, {0, 1, bad, 2});
    const auto k = a.k_cache;
    const auto v = a.v_cache;
    EXPECT_EQ(a.launch(2), KernelStatus::kBadArgument);
    EXPECT_EQ(std::string(a.message.text),
              "cpu: slot_mapping of token 2: -1 or 0..23 required, given " + std::to_string(bad));
    EXPECT_EQ(a.k_cache, k);
    EXPECT_EQ(a.v_cache, v);
  }
}

TEST(CpuKvAppend, RefusesWhatContradictsItself) {
  const auto refusal = [](auto change) {
    Append a(DType::kBf16, false, {0});
    change(a.params.kv_append);
    EXPECT_EQ(a.supports(), KernelStatus::kBadArgument);
    return std::string(a.message.text);
  };
  using P = KvAppendParams&;
  EXPECT_EQ(refusal([](P p) { p.features |= kRotary; }),
            "cpu: an even rotary dim from 2 to head_dim 5 required, given 0");
  EXPECT_EQ(refusal([](P p) {
              p.features |= kRotary;
              p.rotary.dim = 6;
            }),
            "cpu: an even rotary dim from 2 to head_dim 5 required, given 6");
  EXPECT_EQ(refusal([](P p) { p.dtype_k = DType::kE4m3; }),
            "cpu: caches in bf16 and bf16 required by its features, given e4m3 and bf16");
  EXPECT_EQ(refusal([](P p) { p.features |= kInt8K; }),
            "cpu: caches in int8 and bf16 required by its features, given bf16 and bf16");
  EXPECT_EQ(refusal([](P p) { p.features |= kInt8K | kE4m3Kv; }),
            "cpu: a cache in one of e4m3, e5m2 and int8 required, given two");
  EXPECT_EQ(refusal([](P p) { p.features |= kVTokenScales; }),
            "cpu: a quantised cache required for scales per token, given bf16 and bf16");
  EXPECT_EQ(refusal([](P p) { p.block_size = 0; }), "cpu: block_size >= 1 required, given 0");
}

TEST(CpuKvAppend, PositionOutsideTheTablesIsNamedAndNothingIsWritten) {
  const std::vector<float> table(3 * 2, 0.5f);
  for (const int32_t bad : {-1, 3}) {
    Append a(DType::kBf16, false, {0, -1, 2});
    const std::vector<int32_t> positions = {2, 1 << 30, bad};
    a.params.kv_append.features |= kRotary;
    a.params.kv_append.rotary = {table.data(), table.data(), 4, 0, 3, {}};
    a.params.kv_append.positions = positions.data();
    const auto k = a.k_cache;
    EXPECT_EQ(a.launch(2), KernelStatus::kBadArgument);
    EXPECT_EQ(std::string(a.message.text),
              "cpu: position of token 2: 0..2 required, given " + std::to_string(bad));
    EXPECT_EQ(a.k_cache, k);
  }
}

TEST(CpuKvAppend, NoTokens) {
  Append a(DType::kBf16, false, {});
  const auto k = a.k_cache;
  EXPECT_EQ(a.launch(2), KernelStatus::kOk);
  EXPECT_EQ(a.k_cache, k);
}

}  // namespace
}  // namespace attnbench
