// Queries that the cpu kv_append kernel returns, compared with a rotation in double, and positions of 64 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kTokensQuery = 4, kHeadsOfQuery = 6, kHeadsKvQuery = 3, kDimQuery = 10, kTurnedQuery = 6,
              kPositionsQuery = 9, kBlockQuery = 4;
constexpr int64_t kSlotsQuery[kTokensQuery] = {5, -1, 2, 0};
constexpr int64_t kAtQuery[kTokensQuery] = {8, int64_t{1} << 40, 0,
                                            3};  // that of the padding token must not be read

struct QueryAppend {
  OpParams op{};
  std::vector<float> key, query, out, cos, sin, k_cache, v_cache;
  std::vector<unsigned char> out_e4m3;
  std::vector<int32_t> positions;
  float scale = 0.37f;
  KernelMessage message{};

  QueryAppend(uint64_t features, int interleaved, DType type = DType::kFp32) {
    constexpr int kPad = 3;  // behind each head of query_out
    for (int i = 0; i < kTokensQuery * kHeadsKvQuery * kDimQuery; ++i)
      key.push_back(static_cast<float>(i % 17) - 8.0f);
    for (int i = 0; i < kTokensQuery * kHeadsOfQuery * kDimQuery; ++i)
      query.push_back(std::sin(static_cast<float>(i)) * 3.0f);
    for (int i = 0; i < kPositionsQuery * kTurnedQuery / 2; ++i) {
      cos.push_back(std::cos(static_cast<float>(i) * 0.7f));
      sin.push_back(std::sin(static_cast<float>(i) * 0.7f));
    }
    for (const int64_t p : kAtQuery) positions.push_back(static_cast<int32_t>(p));
    out.assign(kTokensQuery * kHeadsOfQuery * (kDimQuery + kPad), -99.0f);
    out_e4m3.assign(out.size(), 0xa5);
    k_cache.assign(2 * kBlockQuery * kHeadsKvQuery * kDimQuery, 0.0f);
    v_cache = k_cache;
    op.op = Op::kKvAppend;
    KvAppendParams& p = op.kv_append = KvAppendParams{};
    p.features = kPagedKv | kFp32 | kQueryOut | features;
    p.num_tokens = kTokensQuery;
    p.num_heads_q = kHeadsOfQuery;
    p.num_heads_kv = kHeadsKvQuery;
    p.head_dim = p.head_dim_v = kDimQuery;
    p.dtype_in = p.dtype_k = p.dtype_v = DType::kFp32;
    p.dtype_query_out = type;
    p.block_size = kBlockQuery;
    p.num_blocks = 2;
    p.key = p.value = key.data();
    p.key_stride_token = p.value_stride_token = kHeadsKvQuery * kDimQuery;
    p.key_stride_head = p.value_stride_head = kDimQuery;
    p.slot_mapping = kSlotsQuery;
    p.k_cache = k_cache.data();
    p.v_cache = v_cache.data();
    p.k_stride_block = p.v_stride_block = kBlockQuery * kHeadsKvQuery * kDimQuery;
    p.k_stride_token = p.v_stride_token = kHeadsKvQuery * kDimQuery;
    p.k_stride_head = p.v_stride_head = kDimQuery;
    p.rotary = {cos.data(), sin.data(), kTurnedQuery, interleaved, kPositionsQuery, {}};
    p.positions = features & kPositions64 ? nullptr : positions.data();
    p.positions64 = features & kPositions64 ? kAtQuery : nullptr;
    p.query = query.data();
    p.query_out = type == DType::kE4m3 ? static_cast<void*>(out_e4m3.data()) : out.data();
    p.query_scale = type == DType::kE4m3 ? &scale : nullptr;
    p.query_stride_token = kHeadsOfQuery * kDimQuery;
    p.query_stride_head = kDimQuery;
    p.query_out_stride_token = kHeadsOfQuery * (kDimQuery + kPad);
    p.query_out_stride_head = kDimQuery + kPad;
  }

  KernelStatus supports() {
    const LaunchContext context{};
    return cpu::kKvAppend.supports(&op, &context, &message);
  }
  KernelStatus launch() {
    LaunchContext context{};
    context.num_threads = 2;
    if (const KernelStatus s = supports(); s != KernelStatus::kOk) return s;
    return cpu::kKvAppend.launch(&op, &context, &message);
  }

  /// Channel c of the query in double, after the rotation if there is one.
  double expected(int t, int h, int c) const {
    const KvAppendParams& p = op.kv_append;
    const float* row = query.data() + (t * kHeadsOfQuery + h) * kDimQuery;
    if (!(p.features & kRotary) || c >= kTurnedQuery) return static_cast<double>(row[c]);
    constexpr int kHalf = kTurnedQuery / 2;
    const int pair = p.rotary.interleaved ? c / 2 : c % kHalf;
    const bool second = p.rotary.interleaved ? c % 2 == 1 : c >= kHalf;
    const double a = row[p.rotary.interleaved ? 2 * pair : pair];
    const double b = row[p.rotary.interleaved ? 2 * pair + 1 : pair + kHalf];
    const double co = cos[static_cast<std::size_t>(kAtQuery[t] * kHalf + pair)];
    const double si = sin[static_cast<std::size_t>(kAtQuery[t] * kHalf + pair)];
    return second ? a * si + b * co : a * co - b * si;
  }
};

TEST(CpuKvAppendQuery, QueriesTurnLikeKeysAndPaddingStaysAsItWas) {
  for (const uint64_t features : {uint64_t{0}, uint64_t{kRotary}, kRotary | kPositions64}) {
    for (const int interleaved : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << features << " interleaved " << interleaved);
      QueryAppend a(features, interleaved);
      ASSERT_EQ(a.launch(), KernelStatus::kOk) << a.message.text;
      const KvAppendParams& p = a.op.kv_append;
      for (std::size_t i = 0; i < a.out.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const int t = static_cast<int>(at / p.query_out_stride_token);
        const int h = static_cast<int>(at % p.query_out_stride_token / p.query_out_stride_head);
        const int c = static_cast<int>(at % p.query_out_stride_head);
        if (c >= kDimQuery || kSlotsQuery[t] < 0) {
          EXPECT_EQ(a.out[i], -99.0f) << t << " " << h << " " << c;
        } else {
          EXPECT_NEAR(a.out[i], a.expected(t, h, c), 1e-6) << t << " " << h << " " << c;
        }
      }
    }
  }
}

TEST(CpuKvAppendQuery, E4m3IsDividedRoundedAndSaturates) {
  for (const float scale : {0.37f, 0.001f}) {  // 3 / 0.001 is past 448
    QueryAppend a(kRotary, 0, DType::kE4m3);
    a.scale = scale;
    ASSERT_EQ(a.launch(), KernelStatus::kOk) << a.message.text;
    const KvAppendParams& p = a.op.kv_append;
    bool saturated = false;
    for (int t = 0; t < kTokensQuery; ++t) {
      for (int h = 0; h < kHeadsOfQuery; ++h) {
        for (int c = 0; c < kDimQuery; ++c) {
          const auto at =
              static_cast<std::size_t>(t * p.query_out_stride_token + h * p.query_out_stride_head + c);
          if (kSlotsQuery[t] < 0) {
            EXPECT_EQ(a.out_e4m3[at], 0xa5);
            continue;
          }
          const double wanted = a.expected(t, h, c) / static_cast<double>(scale);
          const float stored = e4m3_to_float(a.out_e4m3[at]);
          // A value near a boundary may go to either side.
          EXPECT_TRUE(stored == round_to(DType::kE4m3, static_cast<float>(wanted * (1 - 1e-6))) ||
                      stored == round_to(DType::kE4m3, static_cast<float>(wanted * (1 + 1e-6))))
              << t << " " << h << " " << c << ": " << stored << " for " << wanted;
          saturated = saturated || std::abs(stored) == 448.0f;
        }
      }
    }
    EXPECT_EQ(saturated, scale < 0.01f);
  }
}

TEST(CpuKvAppendQuery, CachesDoNotDependOnQueries) {
  QueryAppend with(kRotary, 0), without(kRotary, 0);
  without.op.kv_append.features &= ~uint64_t{kQueryOut};
  ASSERT_EQ(with.launch(), KernelStatus::kOk);
  ASSERT_EQ(without.launch(), KernelStatus::kOk);
  EXPECT_EQ(with.k_cache, without.k_cache);
  EXPECT_EQ(with.v_cache, without.v_cache);
  EXPECT_EQ(without.out, std::vector<float>(without.out.size(), -99.0f));
}

TEST(CpuKvAppendQuery, APositionPast32BitsIsNoPositionInTheTables) {
  QueryAppend a(kRotary | kPositions64, 0);
  const int64_t bad[kTokensQuery] = {8, 0, (int64_t{1} << 32) + 1, 3};
  a.op.kv_append.positions64 = bad;
  EXPECT_EQ(a.launch(), KernelStatus::kBadArgument);
  EXPECT_STREQ(a.message.text, "cpu: position of token 2: 0..8 required, given 4294967297");
  EXPECT_EQ(a.out, std::vector<float>(a.out.size(), -99.0f)) << "nothing is written";
}

TEST(CpuKvAppendQuery, RefusesWhatContradictsItself) {
  const auto refusal = [](auto change) {
    QueryAppend a(kRotary, 0, DType::kE4m3);
    change(a.op.kv_append);
    EXPECT_EQ(a.launch(), KernelStatus::kBadArgument);
    return std::string(a.message.text);
  };
  using P = KvAppendParams&;
  EXPECT_EQ(refusal([](P p) { p.num_heads_q = 4; }),
            "cpu: num_heads_q a positive multiple of num_heads_kv 3 required, given 4");
  EXPECT_EQ(refusal([](P p) { p.dtype_query_out = DType::kBf16; }),
            "cpu: query_out in fp32 or e4m3 required, given bf16");
  EXPECT_EQ(refusal([](P p) { p.features ^= kRotary | kPositions64; }),
            "cpu: rotary required for positions of 64 bits, given none");
  EXPECT_EQ(refusal([](P p) { p.features |= kPositions64; }),
            "cpu: cos, sin and positions required for rotary, given null");
  for (const auto& change : {+[](P p) { p.query = nullptr; }, +[](P p) { p.query_out = nullptr; },
                             +[](P p) { p.query_scale = nullptr; }}) {
    EXPECT_EQ(refusal(change),
              "cpu: query, query_out and, in e4m3, query_scale required for returned queries, given null");
  }
}

}  // namespace
}  // namespace attnbench
