// What every attention_backward kernel refuses, in words that name what is required and what is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "harness/launch/launcher.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

AttentionBackwardParams taken_params() {
  AttentionBackwardParams p{};
  p.features = kPackedKv | kBf16;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = p.head_dim_v = 64;
  p.dtype = DType::kBf16;
  p.window_left = p.window_right = -1;
  return p;
}

std::string refusal_of(const std::function<void(AttentionBackwardParams&)>& change) {
  const Kernel& kernel =
      *select_kernels(builtin_kernels(), Op::kAttentionBackward, DeviceKind::kCpu, {"cpu"}).at(0);
  OpParams op{};
  op.op = Op::kAttentionBackward;
  op.attention_backward = taken_params();
  change(op.attention_backward);
  const LaunchContext context{};
  KernelMessage message{};
  return kernel.supports(&op, &context, &message) == KernelStatus::kOk ? "" : message.text;
}

TEST(RefuseBackward, TakesWhatIsRight) {
  EXPECT_EQ(refusal_of([](auto&) {}), "");
  EXPECT_EQ(refusal_of([](auto& p) {
              p.head_dim_v = 32;
              p.features |= kHeadDimV | kDropout;
              p.p_dropout = 0.1f;
            }),
            "");
}

TEST(RefuseBackward, ShapesAndTypes) {
  EXPECT_THAT(refusal_of([](auto& p) { p.head_dim = p.head_dim_v = 257; }),
              HasSubstr("1..256 required, given 257"));
  EXPECT_THAT(refusal_of([](auto& p) { p.head_dim_v = 32; }),
              HasSubstr("without feature head_dim_v, given 32"));
  EXPECT_THAT(refusal_of([](auto& p) { p.num_heads_q = 5; }),
              HasSubstr("multiple of num_heads_kv 2 required, given 5"));
  EXPECT_THAT(refusal_of([](auto& p) { p.dtype = DType::kFp16; }), HasSubstr("equal to dtype"));
  EXPECT_THAT(refusal_of([](auto& p) { p.batch = -1; }), HasSubstr("batch >= 0 required, given -1"));
  EXPECT_THAT(refusal_of([](auto& p) { p.softcap = -1.0f; }), HasSubstr("softcap >= 0 required, given -1"));
}

TEST(RefuseBackward, FeaturesThatContradictTheFields) {
  EXPECT_THAT(refusal_of([](auto& p) { p.p_dropout = 0.1f; }), HasSubstr("p_dropout"));
  EXPECT_THAT(refusal_of([](auto& p) { p.features |= kDropout; }), HasSubstr("p_dropout"));
  EXPECT_THAT(refusal_of([](auto& p) { p.features &= ~uint64_t{kPackedKv}; }),
              HasSubstr("packed KV required"));
  EXPECT_THAT(refusal_of([](auto& p) { p.features |= kPagedKv; }), HasSubstr("paged is not supported"));
}

/// A kernel for Hopper's refusal of parameters that `change` has changed; "" if it accepts them.
std::string hopper_refusal_of(const Kernel& kernel,
                              const std::function<void(AttentionBackwardParams&)>& change,
                              int capability = 90) {
  OpParams op{};
  op.op = Op::kAttentionBackward;
  AttentionBackwardParams& p = op.attention_backward = taken_params();
  p.batch = 2;
  p.total_q = p.total_k = p.max_seqlen_q = p.max_seqlen_k = 300;
  p.q_stride_token = p.out_stride_token = p.d_out_stride_token = p.dq_stride_token = 256;
  p.k_stride_token = p.v_stride_token = p.dk_stride_token = p.dv_stride_token = 128;
  for (int64_t* stride : {&p.q_stride_head, &p.out_stride_head, &p.d_out_stride_head, &p.dq_stride_head,
                          &p.k_stride_head, &p.v_stride_head, &p.dk_stride_head, &p.dv_stride_head})
    *stride = 64;
  change(p);
  const LaunchContext context{.compute_capability = capability, .multiprocessors = 132};
  KernelMessage message{};
  return kernel.supports(&op, &context, &message) == KernelStatus::kOk ? "" : message.text;
}

TEST(RefuseBackward, OfHopper) {
  int kernels = 0;
  for (const Kernel* k : builtin_kernels()) {
    if (!std::string_view(k->name).starts_with("sm90_backward")) continue;
    ++kernels;
    const auto refusal = [&](auto change) { return hopper_refusal_of(*k, change); };
    EXPECT_EQ(refusal([](auto&) {}), "");
    EXPECT_EQ(refusal([](auto& p) {
                p.features |= kSoftcap | kSinks | kWindow;
                p.softcap = 20.0f;
                p.num_heads_q = 14;
              }),
              "");
    EXPECT_THAT(refusal([](auto& p) { p.head_dim = p.head_dim_v = 96; }),
                HasSubstr(std::string(k->name) + ": head_dim 64 or 128 required, given 96"));
    EXPECT_THAT(refusal([](auto& p) { p.k_stride_head = 72; }),
                HasSubstr("k_stride_head a positive multiple of 64 required, given 72"));
    EXPECT_THAT(refusal([](auto& p) { p.dq_stride_token = 260; }),
                HasSubstr("dq_stride_token a positive multiple of 8 required, given 260"));
    EXPECT_THAT(refusal([](auto& p) { p.total_q = int64_t{1} << 30; }), HasSubstr("up to 2^31 query rows"));
    EXPECT_THAT(refusal([](auto& p) { p.features |= kDropout; }), HasSubstr("dropout is not supported"));
    EXPECT_THAT(refusal([](auto& p) { p.features |= kAlibi; }), HasSubstr("alibi is not supported"));
    EXPECT_THAT(refusal([](auto& p) { p.features |= kHeadDimV; }), HasSubstr("head_dim_v is not supported"));
    EXPECT_THAT(hopper_refusal_of(
                    *k, [](auto&) {}, 80),
                HasSubstr("compute capability 90 required, given 80"));
  }
  if (kernels == 0) GTEST_SKIP() << "built without CUDA";
  EXPECT_EQ(kernels, 2);
}

}  // namespace
}  // namespace attnbench
