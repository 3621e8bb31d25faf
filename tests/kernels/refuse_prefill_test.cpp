// Which types, widths and caches sm90_prefill accepts and refuses, and its tiles. Calls only host code, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kHeads = 8;

/// Parameters of a launch over a paged cache, with whole rows of `dim` and `dim_v` channels.
AttentionParams launch_of(int dim, int dim_v) {
  AttentionParams p{};
  p.features = kPagedKv | kCausal | kBf16 | (dim == dim_v ? 0 : uint64_t{kHeadDimV});
  p.batch = 4;
  p.num_heads_q = p.num_heads_kv = kHeads;
  p.head_dim = dim;
  p.head_dim_v = dim_v;
  p.total_q = 400;
  p.max_seqlen_q = 100;
  p.max_seqlen_k = 1000;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kBf16;
  p.q_stride_head = p.k_stride_head = dim;
  p.v_stride_head = p.out_stride_head = dim_v;
  p.q_stride_token = p.k_stride_token = int64_t{kHeads} * dim;
  p.v_stride_token = p.out_stride_token = int64_t{kHeads} * dim_v;
  p.k_stride_block = 64 * p.k_stride_token;
  p.v_stride_block = 64 * p.v_stride_token;
  p.block_table_stride = 16;
  p.block_size = p.num_blocks = 64;
  p.causal = 1;
  p.window_left = p.window_right = -1;
  p.softmax_scale = 0.1f;
  return p;
}

void make_e4m3(AttentionParams& p) {
  p.features |= kE4m3Kv;
  p.dtype_k = p.dtype_v = DType::kE4m3;
}

void make_all_e4m3(AttentionParams& p) {
  make_e4m3(p);
  p.features |= kE4m3Q;
  p.dtype_q = DType::kE4m3;
}

void make_int8(AttentionParams& p) {
  p.features |= kInt8K | kInt8Q;
  p.dtype_q = p.dtype_k = DType::kInt8;
}

void make_contiguous(AttentionParams& p) {
  p.features = (p.features & ~uint64_t{kPagedKv}) | kContiguousKv;
  p.cache_capacity = 64;
}

class PrefillOf : public ::testing::Test {
 protected:
  explicit PrefillOf(std::string_view name = "sm90_prefill") : name_(name) {}

  void SetUp() override {
    for (const Kernel* k : builtin_kernels()) {
      if (k->name == name_) kernel_ = k;
    }
    if (kernel_ == nullptr) GTEST_SKIP() << "built without CUDA";
  }

  /// The kernel's refusal of a launch that `change` has changed; "" if it accepts it.
  std::string refuses(
      int dim, int dim_v,
      const std::function<void(AttentionParams&)>& change = [](AttentionParams&) {}) const {
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = launch_of(dim, dim_v);
    change(op.attention);
    const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
    KernelMessage message{};
    return kernel_->supports(&op, &context, &message) == KernelStatus::kOk ? "" : message.text;
  }

  /// The tile for `batch` sequences of `tokens` queries at head_dim 128.
  Tile tile(int batch, int tokens, const std::function<void(AttentionParams&)>& change) const {
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = launch_of(128, 128);
    op.attention.batch = batch;
    op.attention.max_seqlen_q = tokens;
    op.attention.total_q = int64_t{batch} * tokens;
    change(op.attention);
    return kernel_->tile(&op);
  }

  int tile_rows(int batch, int tokens, const std::function<void(AttentionParams&)>& change) const {
    return tile(batch, tokens, change).rows;
  }

  std::string name() const { return std::string(name_); }

  const std::string_view name_;
  const Kernel* kernel_ = nullptr;
};

class OneLevelPrefillOf : public PrefillOf {
 protected:
  OneLevelPrefillOf() : PrefillOf("sm90_prefill_one_level") {}
};

class FixedPrefillOf : public PrefillOf {
 protected:
  FixedPrefillOf() : PrefillOf("sm90_prefill_fixed") {}
};

/// Results would depend on the size of pages if keys in small ones were split in another way, or not at all.
TEST_F(FixedPrefillOf, KeysInSmallPagesAreSplitAsInLargeOnes) {
  const auto workspace_bytes = [this](int dim, int block_size) {
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = launch_of(dim, dim);
    op.attention.max_seqlen_k = 65536;
    op.attention.block_size = block_size;
    const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
    return kernel_->workspace_bytes(&op, &context);
  };
  for (const int dim : {64, 128, 256}) {
    EXPECT_GT(workspace_bytes(dim, 16), 1 << 20) << dim << ": it has room for partial states";
    for (const int block_size : {1, 8}) {
      EXPECT_EQ(workspace_bytes(dim, block_size), workspace_bytes(dim, 16)) << dim << ", " << block_size;
      for (const int window_left : {-1, 100}) {
        const auto change = [=](AttentionParams& p) {
          p.max_seqlen_k = 65536;
          p.block_size = block_size;
          p.window_left = window_left;
          if (window_left >= 0) p.features |= kWindow;
        };
        EXPECT_EQ(refuses(dim, dim, change), "") << dim << ", " << block_size << ", " << window_left;
      }
    }
  }
}

TEST_F(FixedPrefillOf, MorePartialStatesThanItCanCountAreRefused) {
  const auto decode = [](int batch) {
    return [=](AttentionParams& p) {
      p.num_heads_q = 8;
      p.num_heads_kv = 1;
      p.batch = batch;
      p.total_q = batch;
      p.max_seqlen_q = 1;
      p.max_seqlen_k = 131072;
    };
  };
  EXPECT_EQ(refuses(128, 128, decode(1900)), "");
  EXPECT_THAT(refuses(128, 128, decode(1950)), HasSubstr("fewer than 65535 partial states required"));
}

TEST_F(FixedPrefillOf, TilesOfLongKeysAreThoseThatSplit) {
  const auto keys = [](int n) {
    return [=](AttentionParams& p) {
      make_all_e4m3(p);
      p.max_seqlen_k = n;
    };
  };
  for (const int n : {4000, 9000}) {
    EXPECT_EQ(tile(8, 4000, keys(n)).rows, 192) << "wide";
    EXPECT_EQ(tile(8, 16, keys(n)).rows, 128);
  }
  const auto groups_of_13 = [&](AttentionParams& p) {
    keys(9000)(p);
    p.num_heads_kv = 2;
    p.num_heads_q = 26;
  };
  EXPECT_EQ(tile(8, 4000, groups_of_13).rows, 128) << "wide tiles would pack other heads than splits count";
}

/// Each kernel that shares its checks with others.
class NameOf : public PrefillOf, public ::testing::WithParamInterface<const char*> {
 protected:
  NameOf() : PrefillOf(GetParam()) {}
};

TEST_P(NameOf, IsInItsRefusals) {
  const auto change = name() == "sm90_prefill_one_level" ? make_all_e4m3 : +[](AttentionParams&) {};
  EXPECT_THAT(refuses(80, 80, change), StartsWith(name() + ": head_dim "));
}

INSTANTIATE_TEST_SUITE_P(Kernels, NameOf,
                         ::testing::Values("sm90_prefill", "sm90_prefill_fixed", "sm90_prefill_one_level",
                                           "sm90_mixed", "sm90_decode", "sm90_decode_fixed"));

TEST_F(PrefillOf, WidthsOfKeysAndValues) {
  for (const int dim : {64, 96, 128, 192, 256}) EXPECT_EQ(refuses(dim, dim), "") << dim;
  EXPECT_EQ(refuses(192, 128), "");
  EXPECT_THAT(refuses(80, 80),
              HasSubstr("head_dim 64, 96, 128, 192, 256, or 192 with head_dim_v 128 required, "
                        "given 80 with head_dim_v 80"));
  EXPECT_THAT(refuses(128, 64), HasSubstr("given 128 with head_dim_v 64"));
  EXPECT_THAT(refuses(192, 192,
                      [](AttentionParams& p) {
                        p.features |= kSoftcap;
                        p.softcap = 20;
                      }),
              HasSubstr("head_dim 64, 128 or 256 for softcap required, given 192"));
}

TEST_F(PrefillOf, KeysInE4m3) {
  for (const int dim : {64, 128, 256}) {
    EXPECT_EQ(refuses(dim, dim, make_e4m3), "") << dim;
    EXPECT_EQ(refuses(dim, dim, make_all_e4m3), "") << dim;
  }
  EXPECT_THAT(refuses(96, 96, make_e4m3),
              HasSubstr("head_dim 64, 128 or 256 for e4m3 KV required, given 96"));
  EXPECT_THAT(refuses(128, 128,
                      [](AttentionParams& p) {
                        make_e4m3(p);
                        p.q_stride_head += 8;
                      }),
              "");
  EXPECT_THAT(refuses(128, 128,
                      [](AttentionParams& p) {
                        make_e4m3(p);
                        p.features |= kE4m3Q;
                        p.dtype_q = DType::kE4m3;
                        p.q_stride_head += 8;
                      }),
              HasSubstr("q_stride_head a positive multiple of 16 required, given 136"));
  EXPECT_THAT(refuses(128, 128,
                      [](AttentionParams& p) {
                        make_e4m3(p);
                        p.dtype_out = DType::kFp16;
                      }),
              HasSubstr("dtype_out bf16 required, given fp16"));
}

TEST_F(OneLevelPrefillOf, TakesE4m3Alone) {
  const auto make_all_e4m3 = [](AttentionParams& p) {
    make_e4m3(p);
    p.features |= kE4m3Q;
    p.dtype_q = DType::kE4m3;
  };
  for (const int dim : {64, 128, 256}) EXPECT_EQ(refuses(dim, dim, make_all_e4m3), "") << dim;
  EXPECT_THAT(refuses(128, 128, make_e4m3), HasSubstr("q, K and V in e4m3 required, given q in bf16"));
  EXPECT_THAT(refuses(128, 128,
                      [&](AttentionParams& p) {
                        make_all_e4m3(p);
                        p.max_seqlen_k = 300'000;
                      }),
              HasSubstr("at most 262144 keys per sequence required, given 300000"));
  EXPECT_THAT(refuses(128, 128,
                      [&](AttentionParams& p) {
                        make_all_e4m3(p);
                        p.features |= kSoftcap;
                        p.softcap = 20;
                      }),
              HasSubstr("softcap is not supported"));
}

TEST_F(PrefillOf, PagesOfAnySize) {
  const auto pages_of = [](int size, float softcap = 0) {
    return [=](AttentionParams& p) {
      p.block_size = size;
      p.k_stride_block = size * p.k_stride_token;
      p.v_stride_block = size * p.v_stride_token;
      p.softcap = softcap;
      if (softcap > 0) p.features |= kSoftcap;
    };
  };
  for (const int size : {1, 2, 12, 17}) EXPECT_EQ(refuses(128, 128, pages_of(size)), "") << size;
  EXPECT_EQ(refuses(96, 96, pages_of(8)), "");
  EXPECT_EQ(refuses(128, 128, pages_of(8, 20)), "");
  EXPECT_THAT(refuses(96, 96,
                      [](AttentionParams& p) {
                        p.features |= kWindow;
                        p.window_left = 6;
                      }),
              HasSubstr("window_left of 7 or more, or -1, required for head_dim 96, given 6"));
  EXPECT_THAT(refuses(64, 64,
                      [](AttentionParams& p) {
                        make_e4m3(p);
                        p.features |= kWindow;
                        p.window_left = 6;
                      }),
              HasSubstr("window_left of 7 or more, or -1, required for head_dim 64 with e4m3 KV, given 6"));
  EXPECT_THAT(refuses(96, 96, pages_of(1)), HasSubstr("block_size a multiple of 8 required for"));
  EXPECT_THAT(refuses(128, 128, pages_of(1, 20)), HasSubstr("softcap"));
}

TEST_F(PrefillOf, TilesOfManyRowsInE4m3) {
  EXPECT_EQ(tile_rows(8, 2048, make_all_e4m3), 192);
  EXPECT_EQ(tile_rows(1, 2048, make_all_e4m3), 128);  // fewer rows than two rounds of tiles
  EXPECT_EQ(tile_rows(64, 512, make_all_e4m3), 128);  // a third of each sequence's last tile would be empty
  EXPECT_EQ(tile_rows(64, 576, make_all_e4m3), 192);  // three tiles each
  EXPECT_EQ(tile_rows(8, 2048, make_e4m3), 128);
  EXPECT_EQ(tile_rows(64, 512,
                      [](AttentionParams& p) {
                        make_all_e4m3(p);
                        p.num_heads_kv = kHeads / 4;  // four heads share a tile
                      }),
            192);
}

// total_q may count rows of nobody, which must not change a result's bits.
TEST_F(PrefillOf, KvBlocksDoNotFollowFromTotalQ) {
  for (const auto& change : {make_e4m3, make_all_e4m3, make_int8}) {
    ASSERT_GT(tile(1, 2048, change).keys, 0);
    EXPECT_EQ(tile(64, 2048, change).keys, tile(1, 2048, change).keys);
  }
}

TEST_F(PrefillOf, AWorkspaceForManyQueriesIsEnoughForFewer) {
  const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
  for (const int group : {1, 7, 48}) {
    OpParams op{};
    op.op = Op::kAttention;
    op.attention = launch_of(128, 128);
    make_all_e4m3(op.attention);
    op.attention.num_heads_q = group * kHeads;
    op.attention.max_seqlen_q = 1 << 20;
    std::size_t least = 0;
    for (int64_t tokens = 1; tokens < 20'000; tokens += 13) {
      op.attention.total_q = tokens;
      const std::size_t bytes = kernel_->workspace_bytes(&op, &context);
      EXPECT_GE(bytes, least) << group << " heads per KV head, " << tokens << " tokens";
      least = bytes;
    }
  }
}

TEST_F(PrefillOf, ContiguousCaches) {
  EXPECT_EQ(refuses(128, 128, make_contiguous), "");
  EXPECT_EQ(refuses(192, 128, make_contiguous), "");
  EXPECT_THAT(refuses(128, 128,
                      [](AttentionParams& p) {
                        make_contiguous(p);
                        p.v_stride_block *= 2;
                      }),
              HasSubstr("rows of the cache as long in K as in V required, given 64 and 128 tokens"));
}

}  // namespace
}  // namespace attnbench
