// Caches with scales for blocks of channels, as launches get them: the numbers in memory, times their scales, are those
// that the reference computes by coordinate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/cases/kv_rows.h"
#include "harness/judge/case_inputs.h"
#include "harness/tensors/workload.h"
#include "kernels/common/addressing.h"
#include "tests/unit/clues_fixtures.h"

namespace attnbench {
namespace {

Case scaled_case(const std::string& yaml) { return expand(parse_inline_case(yaml, {}, 3)).cases.at(0); }

/// What a wrong kernel makes of a row.
enum class Misreading { kNone, kNoScale, kNextScale, kOtherHalf, kNoTail };

/// K or V of row `r` of sequence `b`, KV head `h`, from the memory of a launch on the host.
std::vector<double> row_in_memory(const AttentionParams& p, bool is_v, int b, int r, int h,
                                  Misreading how = Misreading::kNone) {
  const auto at = [&](int64_t block, int64_t token, int64_t head) {
    return kv_row_offset(p, b, r, block, token) + h * head;
  };
  const int64_t numbers = is_v ? at(p.v_stride_block, p.v_stride_token, p.v_stride_head)
                               : at(p.k_stride_block, p.k_stride_token, p.k_stride_head);
  const int64_t scales =
      is_v ? at(p.v_block_scale_stride_block, p.v_block_scale_stride_token, p.v_block_scale_stride_head)
           : at(p.k_block_scale_stride_block, p.k_block_scale_stride_token, p.k_block_scale_stride_head);
  const auto* bytes = static_cast<const uint8_t*>(is_v ? p.v : p.k) + numbers;
  const auto* scale_bytes = static_cast<const uint8_t*>(is_v ? p.v_block_scale : p.k_block_scale);
  const float* descale = is_v ? p.v_descale : p.k_descale;
  const bool latent = (p.features & kKTail) != 0;
  const int scaled = latent || is_v ? p.head_dim_v : p.head_dim, per = latent ? 128 : 16;
  const int half = how == Misreading::kOtherHalf ? 1 : 0;
  std::vector<double> out;
  for (int c = 0; c < scaled; ++c) {
    const int block = how == Misreading::kNextScale ? (c / per + 1) % (scaled / per) : c / per;
    const double scale = how == Misreading::kNoScale ? 1
                         : latent ? static_cast<const float*>(p.k_block_scale)[scales + block]
                                  : e4m3_to_float(scale_bytes[scales + block]);
    const double number = latent ? e4m3_to_float(bytes[c])
                                 : e2m1_to_float(static_cast<uint8_t>(bytes[c / 2] >> ((c + half) % 2 * 4)));
    out.push_back(number * scale * (descale ? static_cast<double>(*descale) : 1.0));
  }
  for (int c = scaled; c < (is_v ? scaled : p.head_dim); ++c) {
    const int64_t tail = at(p.k_tail_stride_block, p.k_tail_stride_token, p.k_tail_stride_head);
    const double x = bf16_to_float(static_cast<const uint16_t*>(p.k_tail)[tail + c - scaled]);
    out.push_back(how == Misreading::kNoTail ? 0 : x);
  }
  return out;
}

/// What a wrong kernel reads from the memory of a launch.
class FromMemory : public reference::Inputs {
 public:
  FromMemory(const AttentionParams& p, const reference::Inputs& queries, Misreading of_k, Misreading of_v)
      : p_(p), queries_(queries), of_k_(of_k), of_v_(of_v) {}
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    queries_.load_q(seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    load(false, seq, head, begin, end, of_k_, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    load(true, seq, head, begin, end, of_v_, out);
  }

 private:
  void load(bool is_v, int seq, int head, int begin, int end, Misreading how, double* out) const {
    for (int r = begin; r < end; ++r) {
      const auto row = row_in_memory(p_, is_v, seq, r, head, how);
      out = std::copy(row.begin(), row.end(), out);
    }
  }
  const AttentionParams& p_;
  const reference::Inputs& queries_;
  const Misreading of_k_, of_v_;
};

constexpr const char* kScaledCases[] = {
    "{kv: packed, kv_dtype: nvfp4, heads: 4/2, head_dim: 64, head_dim_v: 32, batch: q1s9_q2s17}",
    "{kv: paged, block_size: 4, kv_dtype: nvfp4, heads: 4/2, head_dim: 32, dtype: fp16, batch: q1s9_q2s17}",
    "{kv: paged, block_size: 4, kv_layout: hnd, kv_dtype: nvfp4, heads: 4/2, head_dim: 48, v_is_k_view: true, data: huge, batch: q1s9_q2s17}",
    "{kv: contiguous, kv_dtype: nvfp4, heads: 4/2, head_dim: 32, leftpad: 3, data: outlier, batch: q1s9_q2s17}",
    "{kv: paged, block_size: 4, kv_dtype: fp8_ds_mla, heads: 4/1, head_dim: 576, head_dim_v: 512, v_is_k_view: true, batch: q1s9_q2s17}",
    ("{kv: paged, block_size: 4, kv_layout: hnd, kv_dtype: fp8_ds_mla, heads: 4/2, head_dim: 130, head_dim_v: 128, "
     "v_is_k_view: true, page_layout: shared_prefix, shared_prefix: 8, batch: q1s9_q2s17}"),
    "{kv: contiguous, kv_dtype: fp8_ds_mla, heads: 4/1, head_dim: 288, head_dim_v: 256, v_is_k_view: true, data: large, batch: q1s9_q2s17}",
    "{kv: packed, kv_dtype: fp8_ds_mla, heads: 4/1, head_dim: 160, head_dim_v: 128, v_is_k_view: true, gap_tokens: 2, batch: q1s9_q2s17}",
};

TEST(BlockScales, MemoryHoldsWhatTheReferenceComputes) {
  const auto device = open_device("cpu", 1);
  const std::vector<unsigned char> no_new_rows;
  for (const char* yaml : kScaledCases) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(std::string(yaml) + (padded ? " padded" : ""));
      const Case c = scaled_case(yaml);
      Workload workload(*device, c, {.padded_strides = padded});
      const AttentionParams p = workload.params().attention;
      const CaseInputs inputs(c, no_new_rows);
      for (int b = 0; b < p.batch; ++b) {
        for (int r = 0; r < c.params.seqs[static_cast<std::size_t>(b)].k; ++r) {
          for (int h = 0; h < p.num_heads_kv; ++h) {
            std::vector<double> k(static_cast<std::size_t>(p.head_dim)),
                v(static_cast<std::size_t>(p.head_dim_v));
            inputs.load_k(b, h, r, r + 1, k.data());
            inputs.load_v(b, h, r, r + 1, v.data());
            ASSERT_EQ(row_in_memory(p, false, b, r, h), k) << b << " " << r << " " << h;
            ASSERT_EQ(row_in_memory(p, true, b, r, h), v) << b << " " << r << " " << h;
          }
        }
      }
      EXPECT_EQ(workload.guard_damage(), std::nullopt);
    }
  }
}

TEST(BlockScales, CluesNameWhatAWrongKernelMakesOfARow) {
  using enum Misreading;
  const auto device = open_device("cpu", 1);
  const char* const fp4 =
      "{kv: paged, kv_dtype: nvfp4, heads: 4/2, head_dim: 64, mask: causal, batch: q5s9_q7s33_q1s40_q3s48}";
  const char* const latent =
      "{kv: paged, kv_dtype: fp8_ds_mla, heads: 4/1, head_dim: 288, head_dim_v: 256, v_is_k_view: true, mask: causal, "
      "batch: q5s9_q7s33_q1s40_q3s48}";
  struct {
    const char* yaml;
    Misreading of_k, of_v;
    const char* text;
  } const kMistakes[] = {
      {fp4, kNoScale, kNoScale, "scales of blocks of channels are not applied ("},
      {fp4, kNoScale, kNone, "scales of blocks of channels are not applied to K"},
      {fp4, kNone, kNoScale, "scales of blocks of channels are not applied to V"},
      {fp4, kNextScale, kNextScale, "blocks of channels have the scales of their neighbours"},
      {fp4, kOtherHalf, kOtherHalf, "the two numbers of a byte of K and V are exchanged"},
      {latent, kNoScale, kNoScale, "scales of blocks of channels are not applied ("},
      {latent, kNextScale, kNextScale, "blocks of channels have the scales of their neighbours"},
      {latent, kNoTail, kNone, "channels of K behind head_dim_v are left out"},
  };
  for (const auto& m : kMistakes) {
    const Case c = scaled_case(m.yaml);
    const Workload workload(*device, c);
    const AttentionParams p = workload.params().attention;
    const CaseInputs right(c, test::kNoneStored);
    const FromMemory wrong(p, right, m.of_k, m.of_v);
    EXPECT_THAT(test::clues(c, test::outputs_of(c, problem_of(c), wrong)),
                ::testing::Contains(::testing::HasSubstr(std::string("looks like: ") + m.text)))
        << m.text;
    EXPECT_THAT(test::clues(c, test::outputs_of(c, problem_of(c), FromMemory(p, right, kNone, kNone))),
                ::testing::IsEmpty());
  }
}

TEST(BlockScales, ARowOfDeepSeeksCacheHas656Bytes) {
  const Case c = scaled_case(
      "{kv: paged, block_size: 64, kv_dtype: fp8_ds_mla, heads: 64/1, head_dim: 576, head_dim_v: 512, v_is_k_view: true, batch: q1s100}");
  EXPECT_EQ(row_elements(c.params, false), 656);
  const AttentionParams p = Workload::shape_params(c).attention;
  EXPECT_EQ(p.k_stride_token, 656);
  EXPECT_EQ(p.k_stride_block, 64 * 656);
  EXPECT_EQ(p.k_block_scale_stride_token, 656 / 4);
  EXPECT_EQ(p.k_tail_stride_token, 656 / 2);
  const auto device = open_device("cpu", 1);
  const Workload workload(*device, c);
  const AttentionParams with = workload.params().attention;
  const auto offset = [&](const void* part) {
    return static_cast<const char*>(part) - static_cast<const char*>(with.k);
  };
  EXPECT_EQ(offset(with.k_block_scale), 512);
  EXPECT_EQ(offset(with.k_tail), 528);
  EXPECT_EQ(with.v, with.k);
  EXPECT_EQ(with.v_block_scale, with.k_block_scale);
  EXPECT_EQ(with.k_descale, nullptr);
  EXPECT_EQ(with.v_descale, nullptr);
}

TEST(BlockScales, ScalesVaryAndFitInE4m3) {
  std::set<float> seen;
  int equal_neighbours = 0;
  for (uint32_t pos = 0; pos < 64; ++pos) {
    float before = 0;
    for (uint32_t block = 0; block < 8; ++block) {
      for (const Tensor tensor : {Tensor::kK, Tensor::kV}) {
        const float scale = block_scale({7, Profile::kNormal}, tensor, 1, pos, 0, block);
        EXPECT_EQ(round_to(DType::kE4m3, scale), scale);
        seen.insert(scale);
        if (tensor == Tensor::kV) continue;
        equal_neighbours += scale == before;
        before = scale;
      }
    }
  }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(*seen.begin(), 0.25f);
  EXPECT_EQ(*seen.rbegin(), 1.875f);
  EXPECT_LT(equal_neighbours, 512 / 10);
}

TEST(BlockScales, OfUnusedRowsAreNan) {
  const auto device = open_device("cpu", 1);
  for (
      const char* yaml :
      {"{kv: packed, kv_dtype: nvfp4, heads: 2, head_dim: 32, gap_tokens: 3, batch: q1s5_q1s7}",
       "{kv: packed, kv_dtype: fp8_ds_mla, heads: 2/1, head_dim: 160, head_dim_v: 128, v_is_k_view: true, gap_tokens: 3, batch: q1s5_q1s7}"}) {
    const Workload workload(*device, scaled_case(yaml));
    const AttentionParams p = workload.params().attention;
    EXPECT_FALSE(
        std::isnan(load_float(p.dtype_block_scale, p.k_block_scale, 4 * p.k_block_scale_stride_token)));
    for (const int row : {5, 6, 7}) {
      EXPECT_TRUE(
          std::isnan(load_float(p.dtype_block_scale, p.k_block_scale, row * p.k_block_scale_stride_token)));
      if (p.k_tail == nullptr) continue;
      EXPECT_TRUE(std::isnan(load_float(DType::kBf16, p.k_tail, row * p.k_tail_stride_token)));
    }
  }
}

}  // namespace
}  // namespace attnbench
