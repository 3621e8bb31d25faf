// What every attention_backward kernel refuses, in words that name what is required and what is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

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

}  // namespace
}  // namespace attnbench
