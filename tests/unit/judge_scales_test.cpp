// What shares a descale, O in e4m3 and rows that a launch quantises, as verification knows them.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/config/keys.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/error_model.h"
#include "harness/judge/stored_out.h"
#include "harness/ops/kv_append/tensors_scales.h"
#include "harness/tensors/workload.h"

namespace attnbench {
namespace {

Case e4m3_case() {
  Case c;
  c.params.kv = KvSource::kPaged;
  c.params.num_heads_q = 6;
  c.params.num_heads_kv = 3;
  c.params.head_dim = 8;
  c.params.block_size = 4;
  c.params.q_dtype = DType::kE4m3;
  c.params.kv_dtype = KvDType::kE4m3;
  c.params.seqs = {{2, 6}, {1, 3}, {1, 5}};
  return c;
}

/// Different descales of a tensor over all sequences, KV heads and channels.
std::set<float> different(const Case& c, Tensor tensor) {
  std::set<float> found;
  const int group = tensor == Tensor::kQ ? 2 : 1;
  for (int seq = 0; seq < 3; ++seq) {
    for (int head = 0; head < 3; ++head) {
      for (int channel = 0; channel < 8; ++channel)
        found.insert(descale_of(c, tensor, seq, 0, head * group, channel));
    }
  }
  return found;
}

TEST(Descales, AGranularityDecidesWhichCoordinatesMatter) {
  Case c = e4m3_case();
  CaseParams& p = c.params;
  p.q_descales = p.k_descales = p.v_descales = DescalesPer::kTensor;
  for (const Tensor t : {Tensor::kQ, Tensor::kK, Tensor::kV}) EXPECT_EQ(different(c, t).size(), 1u);
  p.q_descales = p.k_descales = p.v_descales = DescalesPer::kHead;
  for (const Tensor t : {Tensor::kQ, Tensor::kK, Tensor::kV}) EXPECT_EQ(different(c, t).size(), 3u);
  for (const Tensor t : {Tensor::kQ, Tensor::kK, Tensor::kV})
    EXPECT_EQ(descale_of(c, t, 0, 0, 2, 0), descale_of(c, t, 2, 0, 2, 7));
  p.v_descales = DescalesPer::kChannel;
  EXPECT_NE(descale_of(c, Tensor::kV, 0, 0, 1, 3), descale_of(c, Tensor::kV, 0, 0, 1, 4));
  EXPECT_EQ(descale_of(c, Tensor::kV, 0, 0, 1, 3), descale_of(c, Tensor::kV, 2, 5, 1, 3));
}

TEST(Descales, LaunchesReadThemByTheirStrides) {
  const auto device = open_device("cpu", 1);
  for (const DescalesPer per :
       {DescalesPer::kUsual, DescalesPer::kHead, DescalesPer::kTensor, DescalesPer::kChannel}) {
    for (const bool padded : {false, true}) {
      Case c = e4m3_case();
      c.params.v_descales = per;
      if (per != DescalesPer::kChannel) c.params.q_descales = c.params.k_descales = per;
      LayoutVariant layout;
      layout.padded_strides = padded;
      const Workload w(*device, c, layout);
      const AttentionParams a = w.params().attention;
      EXPECT_EQ((a.features & kVChannelScales) != 0, per == DescalesPer::kChannel);
      for (int b = 0; b < 3; ++b) {
        for (int h = 0; h < 3; ++h) {
          EXPECT_EQ(a.q_descale[b * a.q_descale_stride_outer + h * a.q_descale_stride_head],
                    descale_of(c, Tensor::kQ, b, 0, 2 * h, 0));
          EXPECT_EQ(a.k_descale[b * a.k_descale_stride_outer + h * a.k_descale_stride_head],
                    descale_of(c, Tensor::kK, b, 0, h, 0));
          const int channel = per == DescalesPer::kChannel ? 5 : 0;
          EXPECT_EQ(a.v_descale[b * a.v_descale_stride_outer + h * a.v_descale_stride_head + channel],
                    descale_of(c, Tensor::kV, b, 0, h, channel));
        }
      }
    }
  }
}

TEST(Descales, RowsOfPagesHaveTheirOwn) {
  const auto device = open_device("cpu", 1);
  for (const KvDType type : {KvDType::kE4m3, KvDType::kInt8}) {
    for (const bool padded : {false, true}) {
      Case c = e4m3_case();
      c.params.kv_dtype = type;
      c.params.q_dtype.reset();
      c.params.v_descales = DescalesPer::kToken;
      if (type == KvDType::kE4m3) c.params.k_descales = DescalesPer::kToken;
      LayoutVariant layout;
      layout.padded_strides = padded;
      const Workload w(*device, c, layout);
      const AttentionParams a = w.params().attention;
      EXPECT_EQ(a.features & (kKTokenScales | kVTokenScales),
                type == KvDType::kE4m3 ? kKTokenScales | kVTokenScales : uint64_t{kVTokenScales});
      for (int b = 0; b < 3; ++b) {
        for (int pos = 0; pos < c.params.seqs[static_cast<std::size_t>(b)].k; ++pos) {
          const int block = a.block_table[b * a.block_table_stride + pos / 4];
          for (int h = 0; h < 3; ++h) {
            const float v = a.v_descale[block * a.v_descale_stride_block +
                                        pos % 4 * a.v_descale_stride_outer + h * a.v_descale_stride_head];
            EXPECT_EQ(v, descale_of(c, Tensor::kV, b, pos, h, 3));
            EXPECT_NE(v, descale_of(c, Tensor::kV, b, pos + 1, h, 3));
            EXPECT_EQ(a.k_descale[block * a.k_descale_stride_block + pos % 4 * a.k_descale_stride_outer +
                                  h * a.k_descale_stride_head],
                      descale_of(c, Tensor::kK, b, pos, h, 0));
          }
        }
      }
    }
  }
}

TEST(Descales, ValuesInARowWithTheirKeysHaveTheirScale) {
  Case c = e4m3_case();
  CaseParams& p = c.params;
  p.op = Op::kKvAppend;
  p.q_dtype.reset();
  p.one_row = true;
  p.head_dim_v = 16;
  p.k_descales = DescalesPer::kTensor;
  p.v_descales = DescalesPer::kChannel;  // has no effect
  for (int h = 0; h < 3; ++h) {
    for (int channel = 0; channel < 8; ++channel) {
      EXPECT_EQ(given_scale(c, false, h, channel), given_scale(c, false, 0, 0));
      EXPECT_EQ(given_scale(c, true, h, channel), given_scale(c, false, 0, 0));
    }
  }
  p = normalised(p);
  EXPECT_EQ(p.v_descales, DescalesPer::kUsual);
  EXPECT_EQ(features_of(p) & (kOneRow | kHeadDimV | kVChannelScales), uint64_t{kOneRow | kHeadDimV});
  const auto device = open_device("cpu", 1);
  const Workload w(*device, c);
  const KvAppendParams a = w.params().kv_append;
  EXPECT_EQ(static_cast<char*>(a.k_cache) - static_cast<char*>(a.v_cache), 16);
  EXPECT_EQ(a.k_stride_token, 3 * 24);
  EXPECT_EQ(a.k_stride_token, a.v_stride_token);
}

TEST(StoredOut, IsCutOffAtWhatItsTypeReaches) {
  Case c = e4m3_case();
  EXPECT_EQ(StoredOut(c).reachable(1e9), 1e9);
  c.params.e4m3_out = true;
  const StoredOut out(c);
  EXPECT_GT(out.scale, 0);
  EXPECT_EQ(out.reachable(1e9), 448 * out.scale);
  EXPECT_EQ(out.reachable(-1e9), -448 * out.scale);
  EXPECT_EQ(out.reachable(100 * out.scale), 100 * out.scale);
  EXPECT_EQ(out.value({float_to_e4m3(3.0f)}, 0), 3.0 * out.scale);
  EXPECT_EQ(out.rounded(3.1 * out.scale), round_to(DType::kE4m3, 3.1f));
}

TEST(StoredOut, TheErrorModelKnowsItsScale) {
  const Numerics exact{DType::kFp32, DType::kFp32, 0x1p-24};
  RowMoments row;
  row.keys = 1;
  row.p_max = row.w2 = row.w4 = 1;
  const ErrorModel one(exact, DType::kE4m3, 64);
  const ErrorModel scaled(exact, DType::kE4m3, 64, 0, 1, 0, 0.01);
  // A value in the middle of e4m3's range: the error is relative. Near zero: a spacing of 2^-9 scales.
  EXPECT_NEAR(one.sigma(row, 3, 0, 0, 0) / 3, 1 / std::sqrt(3) / 16, 1e-4);
  EXPECT_NEAR(scaled.sigma(row, 3, 0, 0, 0) / 3, 1 / std::sqrt(3) / 16, 1e-4);
  EXPECT_NEAR(scaled.sigma(row, 0, 0, 0, 0), 0.01 / 512 / std::sqrt(12), 1e-9);
  EXPECT_NEAR(scaled.ulp(0.03), 0.01 * 0.25, 1e-12) << "3 scales lie between 2 and 4, in steps of 1/4";
  EXPECT_DOUBLE_EQ(one.rounding_bias(), 1.0 / 512);
}

TEST(NewRows, OfAQuantisedCacheAreTheNumbersThatTheLaunchStored) {
  Case c = e4m3_case();
  CaseParams& p = c.params;
  p.q_dtype.reset();
  p.append = true;
  EXPECT_TRUE(p.rounds_new(false) && p.rounds_new(true));
  const std::vector<unsigned char> none;
  // Sequence 0 has two new tokens of three heads and 8 channels, sequences 1 and 2 one.
  const std::vector<unsigned char> k(4 * 3 * 8, float_to_e4m3(1.0f)), v(4 * 3 * 8, float_to_e4m3(2.0f));
  const CaseInputs by_rule(c, none), by_launch(c, k, &v);
  double row[8], other[8];
  by_launch.load_v(1, 2, 2, 3, row);
  EXPECT_DOUBLE_EQ(row[0], 2.0 * descale_of(c, Tensor::kV, 1, 2, 2, 0));
  by_launch.load_k(1, 2, 2, 3, row);
  EXPECT_DOUBLE_EQ(row[7], 1.0 * descale_of(c, Tensor::kK, 1, 2, 2, 7));
  by_rule.load_v(1, 2, 2, 3, row);
  for (const double x : row) {
    const float stored = static_cast<float>(x / descale_of(c, Tensor::kV, 1, 2, 2, 0));
    EXPECT_EQ(stored, round_to(DType::kE4m3, stored)) << "a number of the cache's type";
  }
  p.new_as_stored = true;
  EXPECT_FALSE(p.rounds_new(false));
  CaseInputs(c, k, &v).load_v(1, 2, 2, 3, other);
  EXPECT_NE(other[0], 2.0 * descale_of(c, Tensor::kV, 1, 2, 2, 0)) << "copied rows are known";
}

}  // namespace
}  // namespace attnbench
