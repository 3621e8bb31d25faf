// Which appends and which int8 caches sm90_decode accepts and refuses. Calls only host code, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

AttentionParams fitting() {
  AttentionParams p{};
  p.features = kPagedKv | kCausal | kBf16 | kAppend | kRotary;
  p.batch = 4;
  p.num_heads_q = 32;
  p.num_heads_kv = 8;
  p.head_dim = p.head_dim_v = 128;
  p.total_q = p.total_new = 16;
  p.max_seqlen_q = 4;
  p.max_seqlen_k = 1000;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kBf16;
  p.q_stride_token = p.out_stride_token = 32 * 128;
  p.k_stride_block = p.v_stride_block = 64 * 8 * 128;
  p.k_stride_token = p.v_stride_token = p.k_new_stride_token = p.v_new_stride_token = 8 * 128;
  p.q_stride_head = p.out_stride_head = p.k_stride_head = p.v_stride_head = 128;
  p.k_new_stride_head = p.v_new_stride_head = 128;
  p.block_table_stride = 16;
  p.block_size = p.num_blocks = 64;
  p.causal = 1;
  p.window_left = p.window_right = -1;
  p.softmax_scale = 0.1f;
  p.rotary.dim = 128;
  p.rotary.positions = 2000;
  return p;
}

/// The kernel's refusal of parameters that `change` has changed; "" if it accepts them.
std::string refusal(std::string_view name, const std::function<void(AttentionParams&)>& change) {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op != Op::kAttention || k->name != name) continue;
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = fitting();
    change(op.attention);
    const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
    KernelMessage message{};
    return k->supports(&op, &context, &message) == KernelStatus::kOk ? "" : message.text;
  }
  return "absent";
}

class AppendOf : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (refuses([](AttentionParams&) {}) == "absent") GTEST_SKIP() << "built without CUDA";
  }
  std::string refuses(const std::function<void(AttentionParams&)>& change) {
    return refusal(GetParam(), change);
  }
};

TEST_P(AppendOf, TakesDecodes) {
  for (const int head_dim : {64, 128, 256}) {
    for (const int dim : {16, 32, 64}) {
      for (const int interleaved : {0, 1}) {
        EXPECT_EQ(refuses([&](AttentionParams& p) {
                    p.head_dim = p.head_dim_v = head_dim;
                    p.q_stride_head = p.out_stride_head = p.k_stride_head = p.v_stride_head = head_dim;
                    p.rotary.dim = dim;
                    p.rotary.interleaved = interleaved;
                  }),
                  "");
      }
    }
  }
  EXPECT_EQ(refuses([](AttentionParams& p) {
              p.features ^= kBf16 | kFp16 | kRotary;
              p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kFp16;
            }),
            "");
}

TEST_P(AppendOf, SaysWhatItLacks) {
  EXPECT_THAT(
      refuses([](AttentionParams& p) { p.max_seqlen_q = 5; }),
      HasSubstr("at most 16 query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) required "
                "for append, given 20"));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.rotary.dim = 96; }),
              HasSubstr("a rotary dim of 16, 32, 64, 128 or 256 required, given 96"));
  EXPECT_THAT(refuses([](AttentionParams& p) {
                p.features |= kRotaryQ;
                p.rotary.q_position = RotaryQ::kFromCacheSeqlens;
              }),
              HasSubstr("rotary_q is not supported"));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.v_new_stride_head = 129; }),
              HasSubstr("v_new_stride_head a positive multiple of 2 required, given 129"));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.features ^= kPagedKv | kPackedKv; }),
              HasSubstr("paged or contiguous KV required for append, given packed"));
}

INSTANTIATE_TEST_SUITE_P(Kernels, AppendOf, ::testing::Values("sm90_decode", "sm90_decode_fixed"));

class Int8Of : public AppendOf {
 protected:
  /// The refusal of a decode over K and V in int8 that `change` has changed.
  std::string refuses_int8(const std::function<void(AttentionParams&)>& change) {
    return refuses([&](AttentionParams& p) {
      p.features = kPagedKv | kCausal | kBf16 | kInt8K | kInt8V;
      p.dtype_k = p.dtype_v = DType::kInt8;
      p.total_new = 0;
      change(p);
    });
  }
};

TEST_P(Int8Of, TakesRowsOf128And256Channels) {
  for (const int head_dim : {128, 256}) {
    for (const int query_heads : {8, 32}) {
      EXPECT_EQ(refuses_int8([&](AttentionParams& p) {
                  p.head_dim = p.head_dim_v = head_dim;
                  p.num_heads_q = query_heads;
                  p.q_stride_head = p.out_stride_head = p.k_stride_head = p.v_stride_head = head_dim;
                  p.k_stride_token = p.v_stride_token = 8 * head_dim;
                  p.k_stride_block = p.v_stride_block = 64 * 8 * head_dim;
                }),
                "");
    }
  }
}

TEST_P(Int8Of, LeavesRowsOf64ChannelsToE4m3) {
  EXPECT_EQ(refuses_int8([](AttentionParams& p) {
              p.features = kPagedKv | kCausal | kBf16 | kE4m3Kv;
              p.dtype_k = p.dtype_v = DType::kE4m3;
              p.head_dim = p.head_dim_v = p.k_stride_head = p.v_stride_head = 64;
              p.k_stride_token = p.v_stride_token = 8 * 64;
              p.k_stride_block = p.v_stride_block = 64 * 8 * 64;
            }),
            "");
}

TEST_P(Int8Of, SaysWhatItLacks) {
  EXPECT_THAT(refuses_int8([](AttentionParams& p) {
                p.head_dim = p.head_dim_v = 64;
                p.k_stride_head = p.v_stride_head = 64;
              }),
              HasSubstr("head_dim 128 or 256 required for KV in int8, given 64"));
  EXPECT_THAT(refuses_int8([](AttentionParams& p) {
                p.features ^= kInt8V;
                p.dtype_v = DType::kBf16;
              }),
              HasSubstr("V in int8 required beside K in int8, given bf16"));
  EXPECT_THAT(refuses_int8([](AttentionParams& p) {
                p.features |= kInt8Q;
                p.dtype_q = DType::kInt8;
              }),
              HasSubstr("int8_q is not supported"));
  EXPECT_THAT(refuses_int8([](AttentionParams& p) { p.features |= kAppend | kAppendQuantised; }),
              HasSubstr("append_quantised is not supported"));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Int8Of, ::testing::Values("sm90_decode", "sm90_decode_fixed"));

TEST(AppendOfEightBits, NeedsItsFeature) {
  for (const char* kernel : {"cpu", "cuda_simt"}) {
    const std::string why = refusal(kernel, [](AttentionParams& p) {
      p.features |= kE4m3Q | kE4m3Kv;
      p.dtype_q = p.dtype_k = p.dtype_v = DType::kE4m3;
    });
    if (why == "absent") continue;
    EXPECT_THAT(why, HasSubstr("required for append without append_quantised, given e4m3 and e4m3"))
        << kernel;
  }
}

}  // namespace
}  // namespace attnbench
