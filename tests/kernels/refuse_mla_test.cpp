// What sm90_mla accepts and refuses. Calls only host code, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRow = 576;

AttentionParams latent() {
  AttentionParams p{};
  p.features = kPagedKv | kCausal | kBf16 | kHeadDimV | kVIsK;
  p.batch = 4;
  p.num_heads_q = 128;
  p.num_heads_kv = 1;
  p.head_dim = kRow;
  p.head_dim_v = 512;
  p.total_q = p.max_seqlen_q = 4;
  p.max_seqlen_k = 1000;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kBf16;
  p.q_stride_token = 128 * kRow;
  p.q_stride_head = kRow;
  p.out_stride_token = int64_t{128} * 512;
  p.out_stride_head = 512;
  p.k_stride_block = p.v_stride_block = 64 * kRow;
  p.k_stride_token = p.v_stride_token = p.k_stride_head = p.v_stride_head = kRow;
  p.block_table_stride = 16;
  p.block_size = p.num_blocks = 64;
  p.causal = 1;
  p.window_left = p.window_right = -1;
  p.softmax_scale = 0.1f;
  return p;
}

class MlaOf : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Kernel* k : builtin_kernels()) {
      if (k->name == std::string_view("sm90_mla")) kernel_ = k;
    }
    if (kernel_ == nullptr) GTEST_SKIP() << "built without CUDA";
  }

  /// The kernel's refusal of parameters that `change` has changed; "" if it accepts them.
  std::string refuses(const std::function<void(AttentionParams&)>& change, int capability = 90) const {
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = latent();
    change(op.attention);
    const LaunchContext context{.compute_capability = capability, .multiprocessors = 132};
    KernelMessage message{};
    return kernel_->supports(&op, &context, &message) == KernelStatus::kOk ? "" : message.text;
  }

  const Kernel* kernel_ = nullptr;
};

TEST_F(MlaOf, EveryNumberOfHeadsAndPagesOf16) {
  for (const int heads : {1, 16, 20, 64, 65, 100, 128}) {
    EXPECT_EQ(refuses([&](AttentionParams& p) { p.num_heads_q = heads; }), "") << heads;
  }
  for (const int size : {16, 32, 48, 64, 1024}) {
    EXPECT_EQ(refuses([&](AttentionParams& p) {
                p.block_size = size;
                p.k_stride_block = p.v_stride_block = size * kRow;
              }),
              "")
        << size;
  }
  EXPECT_THAT(refuses([](AttentionParams& p) { p.block_size = 8; }),
              HasSubstr("block_size a multiple of 16 required, given 8"));
}

TEST_F(MlaOf, OneShapeOfRows) {
  const char* needed = "head_dim 576, head_dim_v 512 and v_is_k_view required, given ";
  EXPECT_THAT(refuses([](AttentionParams& p) { p.head_dim = 544; }), HasSubstr(needed));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.head_dim_v = 256; }), HasSubstr(needed));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.features &= ~kVIsK; }), HasSubstr(needed));
}

TEST_F(MlaOf, FewQueryRowsOnHopper) {
  EXPECT_THAT(refuses([](AttentionParams& p) { p.max_seqlen_q = 5; }),
              HasSubstr("at most 512 query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) "
                        "required, given 640"));
  EXPECT_THAT(refuses([](AttentionParams& p) { p.features |= kWindow; }), HasSubstr("window"));
  EXPECT_THAT(refuses([](AttentionParams&) {}, 80), HasSubstr("compute capability 90 required, given 80"));
}

TEST_F(MlaOf, TheWorkspaceFollowsFromMaxima) {
  OpParams op{};
  op.op = Op::kAttention;
  op.attention = latent();
  const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
  op.attention.max_seqlen_k = 64;
  op.attention.batch = 1;
  const std::size_t four_parts = kernel_->workspace_bytes(&op, &context);
  // A tile, and three units for its beginning, in four parts of eight lines, two for each token: two partial
  // results of 64 rows for every block, with 512 channels and an LSE each.
  EXPECT_GE(four_parts, std::size_t{2} * 4 * 8 * 64 * (512 + 1) * sizeof(float));
  // As many parts as multiprocessors allow: 132 / 8. The counters are rounded up to 256 bytes.
  const auto parts = [&] {
    return 4.0 * static_cast<double>(kernel_->workspace_bytes(&op, &context)) /
           static_cast<double>(four_parts);
  };
  op.attention.max_seqlen_k = 100000;
  op.attention.batch = 300;
  EXPECT_NEAR(parts(), 16, 0.01);
  op.attention.batch = 600;
  EXPECT_NEAR(parts(), 16, 0.01);
}

}  // namespace
}  // namespace attnbench
