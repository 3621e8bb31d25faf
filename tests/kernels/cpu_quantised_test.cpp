// int8 q, K and V, and e4m3 q, compared with plain double loops. int8 descales differ by token and head, and
// for V by channel. Descales of rows that must not be read are NaN.
#include <gtest/gtest.h>

#include "tests/kernels/cpu_attention_right.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::expect_right;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::run;
using testing::Seq;
using testing::Slopes;

/// Few and many rows, empty ones, lengths around the steps of 8 and 16, and a split context.
const std::vector<Seq> kMixedTypes = {{1, 1},  {0, 5},   {5, 0},    {3, 7},   {17, 33},
                                      {1, 70}, {40, 25}, {23, 164}, {2, 129}, {1, 2100}};

struct Types {
  const char* name;
  uint64_t quantised;
};
void PrintTo(const Types& t, std::ostream* out) { *out << t.name; }

class CpuQuantised : public ::testing::TestWithParam<Types> {
 protected:
  Problem problem(int heads_q, int heads_kv, int dim, DType t = DType::kFp32) const {
    Problem p{.seqs = kMixedTypes, .heads_q = heads_q, .heads_kv = heads_kv, .dim = dim, .dtype = t};
    p.quantised = GetParam().quantised;
    return p;
  }
};

TEST_P(CpuQuantised, HeadDimsAndTypes) {
  for (const int dim : {1, 8, 31, 33, 72, 256}) {
    for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32}) {
      SCOPED_TRACE(::testing::Message() << "dim " << dim << " " << dtype_name(t));
      Problem p = problem(3, 1, dim, t);
      p.dtype_out = t;
      p.causal = true;
      expect_right(p);
    }
  }
}

TEST_P(CpuQuantised, EverySourceOfKeys) {
  for (const int block_size : {0, 1, 16}) {
    for (const bool hnd : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "block_size " << block_size << " hnd " << hnd);
      Problem p = problem(6, 2, 24, DType::kBf16);
      p.block_size = block_size;
      p.hnd = hnd && block_size > 0;
      p.gaps = hnd && block_size == 0;
      p.q_begin = 3;
      expect_right(p);
    }
  }
  Problem p = problem(6, 2, 24, DType::kBf16);
  p.cache = Cache::kIndexed;
  expect_right(p);
}

TEST_P(CpuQuantised, TermsOfTheScore) {
  Problem p = problem(6, 2, 40, DType::kFp16);
  p.dim_v = 24;
  p.softcap = 3.0f;
  p.alibi = Slopes::kPerSequence;
  p.slope_factor = 0.1f;
  p.sinks = true;
  p.window_left = 20;
  expect_right(p);
}

TEST_P(CpuQuantised, LayoutsAndThreadsDoNotMatter) {
  Problem p = problem(6, 2, 40, DType::kBf16);
  p.causal = true;
  const Result packed = run(p, 1);
  EXPECT_TRUE(packed == run(p, 5));
  p.block_size = 16;
  EXPECT_TRUE(packed == run(p));
  p.hnd = true;
  EXPECT_TRUE(packed == run(p, 3));
}

TEST_P(CpuQuantised, NanInADescaleShows) {
  for (const Seq seq : {Seq{1, 100}, Seq{30, 100}}) {
    for (const float* AttentionParams::*descale :
         {&AttentionParams::q_descale, &AttentionParams::k_descale, &AttentionParams::v_descale}) {
      Problem p = problem(1, 1, 8);
      p.seqs = {seq};
      Layout layout(p);
      AttentionParams& a = layout.params().attention;
      if (a.*descale == nullptr) continue;
      // The descale of row 0 of q, of the sequence's first key (after two rows of poison), or of channel 0.
      const bool of_k = descale == &AttentionParams::k_descale && p.k_rows();
      const bool of_v = descale == &AttentionParams::v_descale && p.v_rows();
      const int64_t stride = of_k ? a.k_descale_stride_outer : of_v ? a.v_descale_stride_outer : 0;
      const_cast<float*>(a.*descale)[2 * stride] = std::nanf("");
      EXPECT_TRUE(std::isnan(layout.run().out[0])) << "q " << seq.q;
    }
  }
}

TEST(CpuDescaleRows, BlocksOfRowsShareDescales) {
  for (const uint64_t types : {kInt8Q | kInt8K, kInt8Q | kInt8K | kInt8V, kE4m3Kv | kKTokenScales}) {
    for (const int block_size : {0, 16, 64}) {
      SCOPED_TRACE(::testing::Message() << std::hex << types << " block_size " << std::dec << block_size);
      Problem p{.seqs = kMixedTypes,
                .heads_q = 6,
                .heads_kv = 2,
                .dim = 24,
                .block_size = block_size,
                .causal = true};
      p.quantised = types;
      p.q_shared = types & kInt8Q ? 32 : 1;
      p.k_shared = 16;
      p.q_begin = 3;
      expect_right(p);
      if (block_size > 0) continue;
      p.k_shared = 64;
      p.gaps = p.probs = true;
      expect_right(p);
    }
  }
}

TEST(CpuDescaleRows, AreRefusedWhereNothingHasThem) {
  LaunchContext context{};
  KernelMessage message{};
  const auto refusal = [&](auto&& change) {
    Problem p{.seqs = {{2, 3}}, .block_size = 16};
    p.quantised = kInt8Q | kInt8K;
    p.q_shared = 32;
    Layout layout(p);
    change(layout.params().attention);
    const KernelStatus s = cpu::kAttention.supports(&layout.params(), &context, &message);
    return s == KernelStatus::kOk ? std::string() : std::string(message.text);
  };
  using A = AttentionParams;
  EXPECT_EQ(refusal([](A&) {}), "");
  const std::string rows =
      "cpu: q_descale_rows for int8 q and k_descale_rows for K with descales per row, over 1 with "
      "descale_rows and 0 without, and a divisor of block_size, required, given ";
  EXPECT_EQ(refusal([](A& p) { p.k_descale_rows = 64; }), rows + "32 and 64");
  EXPECT_EQ(refusal([](A& p) { p.features &= ~uint64_t{kDescaleRows}; }), rows + "32 and 1");
  EXPECT_EQ(refusal([](A& p) { p.q_descale_rows = 1; }), rows + "1 and 1");
  EXPECT_EQ(refusal([](A& p) { p.q_descale_rows = 0; }), rows + "0 and 1");
}

INSTANTIATE_TEST_SUITE_P(
    , CpuQuantised,
    ::testing::Values(Types{"int8", kInt8Q | kInt8K | kInt8V}, Types{"int8_q_and_k", kInt8Q | kInt8K},
                      Types{"int8_k", kInt8K}, Types{"int8_k_and_v", kInt8K | kInt8V},
                      Types{"e4m3", kE4m3Q | kE4m3Kv},
                      Types{"int8_by_row", kInt8Q | kInt8K | kInt8V | kVTokenScales},
                      Types{"e4m3_by_row", kE4m3Q | kE4m3Kv | kKTokenScales | kVTokenScales},
                      Types{"e4m3_k_by_row", kE4m3Kv | kKTokenScales},
                      Types{"e5m2_v_by_row", kE5m2Kv | kVTokenScales}),
    [](const auto& p) { return std::string(p.param.name); });

TEST(CpuQuantisedRefusals, TypesThatDoNotGoTogether) {
  LaunchContext context{};
  KernelMessage message{};
  const auto refusal = [&](uint64_t quantised) {
    Problem p{.seqs = {{2, 3}}};
    p.quantised = quantised;
    Layout layout(p);
    EXPECT_EQ(cpu::kAttention.supports(&layout.params(), &context, &message), KernelStatus::kBadArgument);
    return std::string(message.text);
  };
  EXPECT_EQ(refusal(kE4m3Q), "cpu: KV in e4m3 required for q in e4m3, given other KV");
  EXPECT_EQ(refusal(kInt8Q), "cpu: K in int8 required for q or V in int8, given other K");
  EXPECT_EQ(refusal(kInt8V), "cpu: K in int8 required for q or V in int8, given other K");
  EXPECT_EQ(refusal(kInt8K | kE4m3Kv),
            "cpu: one type of q and one of KV required, given bits of two of e4m3, e5m2, e2m1 and int8");
  EXPECT_EQ(refusal(kInt8K | kE4m3Kv | kInt8Q | kE4m3Q),
            "cpu: one type of q and one of KV required, given bits of two of e4m3, e5m2, e2m1 and int8");
  const std::string rows =
      "cpu: descales per row: K in e4m3 or e5m2, V in these or int8, no other scales of them, and "
      "both or none of a view of K required, given ";
  EXPECT_EQ(refusal(kKTokenScales), rows + "fp32 and fp32");
  EXPECT_EQ(refusal(kInt8K | kVTokenScales), rows + "int8 and fp32");
  EXPECT_EQ(refusal(kInt8K | kInt8V | kKTokenScales), rows + "int8 and int8");
  EXPECT_EQ(refusal(kE4m3Kv | kVTokenScales | kVChannelScales), rows + "e4m3 and e4m3");
}

}  // namespace
}  // namespace attnbench
