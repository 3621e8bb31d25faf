// Caches with scales for blocks of channels (nvfp4, fp8_ds_mla): a launch gives the bits that it gives with the same
// numbers in fp32, because each product of a number and its scale is exact.
#include <gtest/gtest.h>

#include "kernels/common/addressing.h"
#include "tests/kernels/cpu_attention_layout.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::Seq;

constexpr float kKDescale = 2.0f, kVDescale = 0.5f;  ///< of nvfp4: powers of two are exact, too

/// A tensor of bytes with rows of `width`, in the order of a launch's K. Between rows and in unused ones all bits are 1.
struct ByteRows {
  int64_t width, block, token, head;
  std::vector<uint8_t> bytes;

  ByteRows(const AttentionParams& p, int64_t row_bytes, int64_t gap) : width(row_bytes) {
    const bool packed = (p.features & kPackedKv) != 0;
    const int64_t size = packed                         ? 1
                         : (p.features & kPagedKv) != 0 ? p.block_size
                                                        : p.k_stride_block / p.k_stride_token;
    const int64_t one = row_bytes + gap, heads = p.num_heads_kv;
    const bool hnd = (p.features & kHnd) != 0;
    block = size * heads * one;
    token = hnd ? one : heads * one;
    head = hnd ? size * one : one;
    const int64_t all = packed ? p.cu_seqlens_k[p.batch] + 2 : p.num_blocks * size;
    bytes.assign(static_cast<std::size_t>(all * heads * one), 0xff);
  }
  uint8_t* row(const AttentionParams& p, int b, int r, int h) {
    return &bytes[static_cast<std::size_t>(kv_row_offset(p, b, r, block, token) + h * head)];
  }
};

/// Gives the launch of a problem in fp32 quantised caches, and its fp32 caches the numbers of these.
class BlockCaches {
 public:
  explicit BlockCaches(Layout& layout, bool latent)
      : p_(layout.params().attention),
        plain_(p_),
        latent_(latent),
        rows_{ByteRows(p_,
                       latent ? p_.head_dim_v + p_.head_dim_v / 32 + 2 * (p_.head_dim - p_.head_dim_v)
                              : p_.head_dim / 2,
                       8),
              ByteRows(p_, p_.head_dim_v / 2, 4)},
        scales_{ByteRows(p_, p_.head_dim / 16, 3), ByteRows(p_, p_.head_dim_v / 16, 1)} {
    for (int b = 0; b < p_.batch; ++b) {
      for (int r = 0; r < seq_range(p_, b).k_len; ++r) {
        for (int h = 0; h < p_.num_heads_kv; ++h) quantise(b, r, h);
      }
    }
  }

  void use_plain() {
    p_ = plain_;
    if (!latent_) p_.softmax_scale *= kKDescale;
  }
  void use_blocks() {
    p_ = plain_;
    p_.features |= kBlockScales | (latent_ ? kE4m3Kv | kKTail : kE2m1Kv);
    p_.dtype_k = p_.dtype_v = latent_ ? DType::kE4m3 : DType::kE2m1x2;
    p_.scale_block = latent_ ? 128 : 16;
    p_.dtype_block_scale = latent_ ? DType::kFp32 : DType::kE4m3;
    const bool view = (p_.features & kVIsK) != 0;
    const auto set = [](ByteRows& of, int64_t size, int64_t at, auto*& pointer, int64_t& block,
                        int64_t& token, int64_t& head) {
      pointer = of.bytes.data() + at;
      block = of.block / size;
      token = of.token / size;
      head = of.head / size;
    };
    ByteRows &k = rows_[0], &v = rows_[view ? 0 : 1];
    set(k, 1, 0, p_.k, p_.k_stride_block, p_.k_stride_token, p_.k_stride_head);
    set(v, 1, 0, p_.v, p_.v_stride_block, p_.v_stride_token, p_.v_stride_head);
    const int64_t scales_at = latent_ ? p_.head_dim_v : 0, size = latent_ ? 4 : 1;
    ByteRows &k_scales = latent_ ? k : scales_[0], &v_scales = latent_ ? k : scales_[view ? 0 : 1];
    set(k_scales, size, scales_at, p_.k_block_scale, p_.k_block_scale_stride_block,
        p_.k_block_scale_stride_token, p_.k_block_scale_stride_head);
    set(v_scales, size, scales_at, p_.v_block_scale, p_.v_block_scale_stride_block,
        p_.v_block_scale_stride_token, p_.v_block_scale_stride_head);
    if (latent_) {
      set(k, 2, p_.head_dim_v + p_.head_dim_v / 32, p_.k_tail, p_.k_tail_stride_block, p_.k_tail_stride_token,
          p_.k_tail_stride_head);
    } else {
      p_.k_descale = &kKDescale;
      p_.v_descale = &kVDescale;
    }
  }
  ByteRows& numbers(bool is_v) { return rows_[is_v]; }
  ByteRows& scales(bool is_v) { return scales_[is_v]; }

 private:
  /// Four significant bits, which differ by row, head and block.
  static float scale_of(int b, int r, int h, int block, bool is_v) {
    const int n = b * 7 + r * 5 + h * 3 + block * 11 + (is_v ? 1 : 0);
    return static_cast<float>(8 + n % 8) * (n % 3 == 0 ? 0x1p-6f : 0x1p-7f);
  }
  void quantise(int b, int r, int h) {
    const bool view = (p_.features & kVIsK) != 0;
    for (const bool is_v : {false, true}) {
      if (is_v && view) break;
      const int64_t at = is_v ? v_row_offset(plain_, b, r) + h * plain_.v_stride_head
                              : k_row_offset(plain_, b, r) + h * plain_.k_stride_head;
      float* const plain = static_cast<float*>(const_cast<void*>(is_v ? plain_.v : plain_.k)) + at;
      uint8_t* const row = rows_[is_v].row(plain_, b, r, h);
      const int per = latent_ ? 128 : 16, dim = is_v || latent_ ? plain_.head_dim_v : plain_.head_dim;
      for (int c = 0; c < dim; ++c) {
        const float scale = scale_of(b, r, h, c / per, is_v);
        const DType type = latent_ ? DType::kE4m3 : DType::kE2m1x2;
        store_float(type, row, c, plain[c] / scale);
        plain[c] = load_float(type, row, c) * scale;
        if (latent_) {
          std::memcpy(row + dim + c / per * 4, &scale, sizeof scale);
        } else {
          scales_[is_v].row(plain_, b, r, h)[c / per] = float_to_e4m3(scale);
        }
      }
      for (int c = dim; c < (latent_ ? plain_.head_dim : dim); ++c) {
        const uint16_t bits = float_to_bf16(plain[c]);
        std::memcpy(row + dim + dim / 32 + 2 * (c - dim), &bits, sizeof bits);
        plain[c] = bf16_to_float(bits);
      }
    }
  }

  AttentionParams& p_;
  const AttentionParams plain_;
  const bool latent_;
  ByteRows rows_[2], scales_[2];
};

void expect_bits_of_fp32(const Problem& problem, bool latent) {
  Layout layout(problem);
  BlockCaches caches(layout, latent);
  caches.use_plain();
  Result expected = layout.run();
  if (!latent) {
    for (float& x : expected.out) x *= kVDescale;
  }
  caches.use_blocks();
  EXPECT_EQ(layout.run(), expected);
}

const std::vector<Seq> kMixedScaled = {{1, 1},  {0, 5},   {5, 0},   {3, 7},   {7, 3},    {17, 33},
                                       {1, 70}, {40, 25}, {23, 64}, {60, 90}, {1, 2100}, {9, 1300}};

Problem fp4_problem(int heads_q, int heads_kv, int dim, int dim_v = 0) {
  return {.seqs = kMixedScaled, .heads_q = heads_q, .heads_kv = heads_kv, .dim = dim, .dim_v = dim_v};
}
Problem latent_problem(int heads_q, int heads_kv, int dim, int dim_v) {
  Problem p = fp4_problem(heads_q, heads_kv, dim, dim_v);
  p.v_is_k = true;
  return p;
}

TEST(CpuBlockScales, WidthsOfNvfp4) {
  for (const auto& [dim, dim_v] : {std::pair{16, 16}, {48, 48}, {64, 128}, {128, 16}, {576, 512}}) {
    SCOPED_TRACE(::testing::Message() << dim << "/" << dim_v);
    expect_bits_of_fp32(fp4_problem(4, 2, dim, dim_v), false);
  }
  Problem view = fp4_problem(3, 1, 96, 64);
  view.v_is_k = true;
  expect_bits_of_fp32(view, false);
}

TEST(CpuBlockScales, WidthsOfLatents) {
  for (const auto& [dim, dim_v] : {std::pair{576, 512}, {130, 128}, {288, 256}, {190, 128}}) {
    SCOPED_TRACE(::testing::Message() << dim << "/" << dim_v);
    expect_bits_of_fp32(latent_problem(4, 1, dim, dim_v), true);
    expect_bits_of_fp32(latent_problem(4, 2, dim, dim_v), true);
  }
}

TEST(CpuBlockScales, PagesContiguousCachesAndAllTermsOfTheScore) {
  for (const bool is_latent : {false, true}) {
    for (const int block_size : {0, 1, 16}) {
      for (const bool hnd : {false, true}) {
        SCOPED_TRACE(::testing::Message() << is_latent << " block_size " << block_size << " hnd " << hnd);
        Problem p = is_latent ? latent_problem(4, 2, 160, 128) : fp4_problem(4, 2, 64);
        p.block_size = block_size;
        p.hnd = hnd && block_size > 0;
        p.cache = block_size == 0 && hnd ? Cache::kIndexed : Cache::kNone;
        p.softcap = 3.0f;
        p.sinks = true;
        p.causal = true;
        p.window_left = 900;
        p.probs = true;
        expect_bits_of_fp32(p, is_latent);
      }
    }
  }
}

TEST(CpuBlockScales, ListsOfKeys) {
  for (const bool is_latent : {false, true}) {
    for (const int block_size : {0, 16}) {
      Problem p = is_latent ? latent_problem(16, 1, 576, 512) : fp4_problem(6, 2, 64);
      p.seqs = {{3, 70}, {1, 130}, {5, 0}, {20, 33}};
      p.block_size = block_size;
      p.topk = 200;
      expect_bits_of_fp32(p, is_latent);
    }
  }
}

TEST(CpuBlockScales, NanInAScaleShows) {
  for (const Seq seq : {Seq{1, 100}, Seq{30, 100}}) {
    for (const bool is_v : {false, true}) {
      Problem p{.seqs = {seq}, .heads_q = 1, .heads_kv = 1, .dim = 64};
      Layout layout(p);
      BlockCaches caches(layout, false);
      caches.use_blocks();
      EXPECT_FALSE(std::isnan(layout.run().out[20]));
      caches.scales(is_v).row(layout.params().attention, 0, 50, 0)[1] = 0x7f;
      const Result result = layout.run();
      EXPECT_TRUE(std::isnan(result.out[20])) << "channel 20 is in the block";
      EXPECT_EQ(std::isnan(result.out[0]), !is_v);
    }
  }
}

TEST(CpuBlockScales, Refusals) {
  Layout layout({.seqs = {{1, 5}}, .heads_q = 1, .heads_kv = 1, .dim = 64});
  BlockCaches caches(layout, false);
  caches.use_blocks();
  const OpParams right = layout.params();
  const LaunchContext context{};
  const auto refusal = [&](auto change, bool launch = false) {
    OpParams op = right;
    change(op.attention);
    KernelMessage message{};
    const auto of = launch ? cpu::kAttention.launch : cpu::kAttention.supports;
    EXPECT_EQ(of(&op, &context, &message), KernelStatus::kBadArgument);
    return std::string(message.text);
  };
  using A = AttentionParams;
  EXPECT_EQ(refusal([](A& p) { p.features &= ~uint64_t{kBlockScales}; }),
            "cpu: block_scales required for e2m1_kv and k_tail, given none");
  EXPECT_EQ(refusal([](A& p) { p.features |= kKTail; }),
            "cpu: one of e2m1_kv and k_tail required with block_scales");
  EXPECT_EQ(refusal([](A& p) { p.scale_block = 32; }),
            "cpu: scales in e4m3 of 16 channels required, given e4m3 of 32");
  EXPECT_EQ(refusal([](A& p) { p.dtype_block_scale = DType::kFp32; }),
            "cpu: scales in e4m3 of 16 channels required, given fp32 of 16");
  EXPECT_EQ(refusal([](A& p) { p.head_dim = p.head_dim_v = 72; }),
            "cpu: head_dim_v a multiple of 16 and head_dim too required of block_scales, given 72 and 72");
  EXPECT_EQ(refusal([](A& p) { p.k_block_scale = nullptr; }, true),
            "cpu: k_block_scale and v_block_scale required for block_scales, given null");
  EXPECT_EQ(refusal([](A& p) { p.k_descale = nullptr; }, true),
            "cpu: k_descale required for quantised K, given null");
}

}  // namespace
}  // namespace attnbench
