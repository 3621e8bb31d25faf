// Appending: the cpu kernel passes. A kernel that ignores or changes one part of its parameters fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/session/session.h"

namespace attnbench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Kernel& cpu_kernel(Op op) {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == op && k->device == DeviceKind::kCpu) return *k;
  }
  throw std::logic_error("the cpu kernels are always built");
}

struct Fault {
  std::string name;
  std::string mapping;  ///< the case, as after --case
  std::function<void(OpParams&)> bend;
  std::string reason;  ///< a part of the verdict's reason; empty: must pass
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

std::function<void(OpParams&)> bend_next;  ///< applied to the wrapper's next launches

Record run_bent(const std::string& mapping, std::function<void(OpParams&)> bend) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  if (cases.size() != 1) throw std::logic_error("one case wanted: " + mapping);
  const Op op = cases[0].params.op;
  Kernel kernel = cpu_kernel(op);
  bend_next = std::move(bend);
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams bent = *p;
    bend_next(bent);
    return cpu_kernel(p->op).launch(&bent, c, m);
  };
  const auto device = open_device("cpu", 2);
  SessionOptions options;
  options.time = false;
  bool lost = false;
  return run_item({&cases[0], &kernel}, *device, options, lost);
}

class Append : public ::testing::TestWithParam<Fault> {};

TEST_P(Append, IsJudgedRight) {
  const Fault& fault = GetParam();
  const Record right = run_bent(fault.mapping, [](OpParams&) {});
  EXPECT_EQ(right.status, Status::kPass) << right.reason;
  const Record wrong = run_bent(fault.mapping, fault.bend);
  EXPECT_EQ(wrong.status, Status::kFail);
  EXPECT_THAT(wrong.reason, HasSubstr(fault.reason));
}

std::string kv_append(const std::string& keys) {
  return "{op: kv_append, heads: 2, head_dim: 32, batch: q3s40_q0s9_q20s33, padding_tokens: 2, " + keys + "}";
}

/// Cosines off by 2^-12. A bf16 row shows this in the elements that cross a rounding boundary.
void bend_tables(RotaryParams& r) {
  static std::vector<float> cos;
  cos.assign(r.cos, r.cos + r.positions * (r.dim / 2));
  for (float& c : cos) c *= 1.0f + 0x1p-12f;
  r.cos = cos.data();
}

const std::vector<Fault> kKvAppendFaults = {
    {"RotaryIgnored", kv_append("rotary: neox"), [](OpParams& p) { p.kv_append.features &= ~kRotary; },
     "k_cache slot"},
    {"HalvesForPairs", kv_append("rotary: interleaved"),
     [](OpParams& p) { p.kv_append.rotary.interleaved = 0; }, "appended"},
    {"PairsForHalves", kv_append("rotary: neox, dtype: fp32"),
     [](OpParams& p) { p.kv_append.rotary.interleaved = 1; }, "appended"},
    {"PartialIgnored", kv_append("rotary: neox, rotary_dim: 16"),
     [](OpParams& p) {
       static std::vector<float> cos, sin;
       RotaryParams& r = p.kv_append.rotary;
       cos.assign(static_cast<std::size_t>(r.positions) * 16, 0.5f);
       sin = cos;
       r.cos = cos.data();
       r.sin = sin.data();
       r.dim = 32;
     },
     "appended"},
    {"PositionOffByOne", kv_append("rotary: neox"),
     [](OpParams& p) {
       static std::vector<int32_t> positions;
       positions.assign(p.kv_append.positions, p.kv_append.positions + p.kv_append.num_tokens);
       for (int32_t& n : positions) n = std::max(0, n - 1);
       p.kv_append.positions = positions.data();
     },
     "appended"},
    {"TablesSlightlyOff", kv_append("rotary: neox"), [](OpParams& p) { bend_tables(p.kv_append.rotary); },
     "appended"},
};

std::string with_queries(const std::string& keys) {
  return "{op: kv_append, heads: 4/2, head_dim: 32, batch: q3s40_q0s9_q20s33, padding_tokens: 2, " + keys +
         "}";
}

/// Launches correctly, then changes an element of query_out: that of `token`, head 1, channel 5.
std::function<void(OpParams&)> query_changed(int64_t token, float factor) {
  return [=](OpParams& op) {
    KvAppendParams& p = op.kv_append;
    KernelMessage m{};
    LaunchContext c{};
    c.num_threads = 1;
    cpu_kernel(Op::kKvAppend).launch(&op, &c, &m);
    const int64_t at = token * p.query_out_stride_token + p.query_out_stride_head + 5;
    const float x = load_float(p.dtype_query_out, p.query_out, at);
    store_float(p.dtype_query_out, p.query_out, at, std::isnan(x) ? 1.0f : x * factor);
    p.num_tokens = 0;  // so the launch that follows does nothing
  };
}

constexpr int64_t kPaddingToken = 24;  // behind all others
const std::vector<Fault> kQueryFaults = {
    {"OneElementOff", with_queries("query_out: same"), query_changed(0, 1.01f),
     "query_out of token 0 head 1 channel 5: got"},
    {"OneTurnedElementOff", with_queries("query_out: same, rotary: neox, dtype: fp16"),
     query_changed(4, 1.002f), "query_out of token 4 head 1 channel 5: got"},
    {"OneElementOfE4m3Off", with_queries("query_out: e4m3, rotary: neox"), query_changed(4, -1.0f),
     "query_out of token 4 head 1 channel 5: got"},
    {"PaddingWritten", with_queries("query_out: same"), query_changed(kPaddingToken, 1.0f),
     "query_out of token 24 head 1 channel 5: got 1, and nothing may be written: the token is padding"},
    {"NothingWritten", with_queries("query_out: e4m3"),
     [](OpParams& p) { p.kv_append.features &= ~uint64_t{kQueryOut}; },
     "query_out of token 0 head 0 channel 0: got"},
    {"PositionsOfHalfTheirSize", kv_append("rotary: neox, positions: int64"),
     [](OpParams& p) {
       static std::vector<int32_t> halves;
       halves.assign(reinterpret_cast<const int32_t*>(p.kv_append.positions64),
                     reinterpret_cast<const int32_t*>(p.kv_append.positions64) + p.kv_append.num_tokens);
       for (int32_t& n : halves) n = n > 32 ? 0 : n;
       p.kv_append.features &= ~uint64_t{kPositions64};
       p.kv_append.positions = halves.data();
     },
     "k_cache slot"},
};

std::string cached(const std::string& keys) {
  return "{heads: 4/2, head_dim: 32, mask: causal, rotary_cached: true, batch: q3s40_q0s9_q20s33, " + keys +
         "}";
}

const std::vector<Fault> kCachedFaults = {
    {"KeysNotTurned", cached("kv: paged, rotary: neox"),
     [](OpParams& p) { p.attention.features &= ~uint64_t{kRotaryCached}; }, "seq"},
    {"NothingTurned", cached("kv: packed, rotary: interleaved"),
     [](OpParams& p) { p.attention.features &= ~uint64_t{kRotary | kRotaryCached}; }, "seq"},
    {"PairsForHalves", cached("kv: contiguous, leftpad: 3, rotary: neox, dtype: fp16"),
     [](OpParams& p) { p.attention.rotary.interleaved = 1; }, "seq"},
    {"QueriesOnTheDiagonal", cached("kv: paged, rotary: neox, rotary_q: at_cache_seqlens"),
     [](OpParams& p) {
       p.attention.features &= ~uint64_t{kRotaryQ};
       p.attention.rotary.q_position = RotaryQ::kDiagonal;
     },
     "seq"},
};

TEST(Append, CluesNameTheMistake) {
  const auto named = [](const std::string& mapping, const std::function<void(OpParams&)>& bend) {
    const Record r = run_bent(mapping, bend);
    std::vector<std::string> clues = r.check ? r.check->clues : std::vector<std::string>{};
    std::erase_if(clues, [](const std::string& clue) { return !clue.starts_with("looks like"); });
    return clues;
  };
  const auto scales_of =
      [](const std::function<void(std::vector<float> & k, std::vector<float> & v)>& change) {
        return [change](OpParams& op) {
          static std::vector<float> k, v;
          KvAppendParams& p = op.kv_append;
          k.assign(p.k_scale.given, p.k_scale.given + p.num_heads_kv);
          v.assign(p.v_scale.given, p.v_scale.given + p.num_heads_kv);
          change(k, v);
          p.k_scale.given = k.data(), p.v_scale.given = v.data();
        };
      };
  const auto moved = [](int by, bool padding) {
    return [=](OpParams& op) {
      static std::vector<int64_t> slots;
      KvAppendParams& p = op.kv_append;
      slots.assign(p.slot_mapping, p.slot_mapping + p.num_tokens);
      for (int64_t& s : slots) s = s >= 0 ? s + by : padding ? 0 : s;
      p.slot_mapping = slots.data();
    };
  };
  EXPECT_THAT(named(kv_append("dtype: bf16"), moved(1, false)),
              ElementsAre(StartsWith("looks like: rows of K and V for slot s are written to slot s + 1 (")));
  EXPECT_THAT(
      named(kv_append("rotary: neox"), [](OpParams& p) { p.kv_append.features &= ~kRotary; }),
      ElementsAre("looks like: rows of K are not rotated (all 46 wrong rows tried match this mistake)"));
  EXPECT_THAT(
      named(kv_append("dtype: bf16"), [](OpParams& p) { std::swap(p.kv_append.key, p.kv_append.value); }),
      ElementsAre(StartsWith("looks like: rows of K and V have what belongs to the other tensor (")));
  const Record padded = run_bent(kv_append("dtype: bf16, page_layout: contiguous"), moved(0, true));
  ASSERT_TRUE(padded.check);
  EXPECT_THAT(padded.check->clues,
              ::testing::Contains(HasSubstr("perhaps by a padding token, whose slot is -1")));
  const std::string e4m3 = kv_append("kv_dtype: e4m3");
  EXPECT_THAT(
      named(e4m3, scales_of([](auto& k, auto& v) { std::swap(k, v); })),
      ElementsAre(
          "looks like: rows of K and V have the scale of the other tensor (all 92 wrong rows tried match this mistake)"));
  EXPECT_THAT(named(e4m3, scales_of([](auto& k, auto& v) { k.assign(2, 1), v.assign(2, 1); })),
              ElementsAre(StartsWith("looks like: scales of K and V are not applied (")));
  EXPECT_THAT(named(e4m3, scales_of([](auto&, auto& v) { std::swap(v[0], v[1]); })),
              ElementsAre(StartsWith("looks like: rows of V have the scale of head h + 1 (")));
}

TEST(Append, KeysThatAreNotTurnedAreSaidSo) {
  const Record r = run_bent(kCachedFaults[0].mapping, kCachedFaults[0].bend);
  ASSERT_TRUE(r.check);
  EXPECT_THAT(r.check->clues, ::testing::Contains(HasSubstr("keys of the cache are not turned")));
}

std::string quantised(const std::string& keys) {
  return "{op: kv_append, heads: 3, head_dim: 32, batch: q3s40_q0s9_q20s33, padding_tokens: 2, " + keys + "}";
}

/// Given scales that are all 1.
void drop_scales(ScaleParams& s) {
  static const std::vector<float> ones(1024, 1.0f);
  s.given = ones.data();
}

/// Launches correctly, then changes the row of token 0, head 0 of K. `change` receives the row and its scale.
void after_launch(OpParams& op,
                  const std::function<void(KvAppendParams&, int64_t row, float& scale)>& change) {
  KvAppendParams& p = op.kv_append;
  KernelMessage m{};
  LaunchContext c{};
  c.num_threads = 1;
  cpu_kernel(Op::kKvAppend).launch(&op, &c, &m);
  const int64_t slot = p.slot_mapping[0];
  const auto at = [&](int64_t block, int64_t token) {
    return slot / p.block_size * block + slot % p.block_size * token;
  };
  float none = 0;
  float& scale =
      p.k_scale.computed ? p.k_scale.computed[at(p.k_scale.stride_block, p.k_scale.stride_token)] : none;
  change(p, at(p.k_stride_block, p.k_stride_token), scale);
  p.num_tokens = 0;  // so the launch that follows does nothing
}

/// The low 8 bits of an integer, as a conversion without saturation keeps them.
void wrap_around(OpParams& op) {
  after_launch(op, [&](KvAppendParams& p, int64_t, float&) {
    for (int64_t t = 0; t < op.kv_append.num_tokens; ++t) {
      const int64_t slot = p.slot_mapping[t];
      if (slot < 0) continue;
      const int64_t row = slot / p.block_size * p.k_stride_block + slot % p.block_size * p.k_stride_token;
      for (int c = 0; c < p.head_dim; ++c) {
        const float x = load_float(p.dtype_in, p.key, t * p.key_stride_token + c) / p.k_scale.given[c];
        static_cast<int8_t*>(p.k_cache)[row + c] = static_cast<int8_t>(std::lrint(x));
      }
    }
  });
}

const std::vector<Fault> kQuantisedFaults = {
    {"ScaleOfKIgnored", quantised("kv_dtype: e4m3"), [](OpParams& p) { drop_scales(p.kv_append.k_scale); },
     "k_cache slot"},
    {"ScaleOfVIgnored", quantised("kv_dtype: int8, scales: per_token_k"),
     [](OpParams& p) { drop_scales(p.kv_append.v_scale); }, "v_cache slot"},
    {"ScalesOfKAndVSwapped", quantised("kv_dtype: int8"),
     [](OpParams& p) { std::swap(p.kv_append.k_scale, p.kv_append.v_scale); }, "appended"},
    {"ComputedScalesSwapped", quantised("kv_dtype: e4m3, scales: per_token"),
     [](OpParams& p) { std::swap(p.kv_append.k_scale.computed, p.kv_append.v_scale.computed); },
     "k_scales slot"},
    {"ScaleOfAnotherHead", quantised("kv_dtype: e4m3, dtype: fp32"),
     [](OpParams& p) {
       static std::vector<float> next;
       const ScaleParams& s = p.kv_append.k_scale;
       next.assign(s.given, s.given + p.kv_append.num_heads_kv);
       std::rotate(next.begin(), next.begin() + 1, next.end());
       p.kv_append.k_scale.given = next.data();
     },
     "head 0"},
    {"ScaleOfAnotherChannel", quantised("kv_dtype: int8_k, dtype: fp16"),
     [](OpParams& p) { p.kv_append.k_scale.given_stride_channel = 0; }, "channel 1"},
    {"SaturationMissing", quantised("kv_dtype: int8"), wrap_around, "appended"},
    {"ComputedScaleOfHead0", quantised("kv_dtype: int8, scales: per_token"),
     [](OpParams& p) { p.kv_append.k_scale.stride_head = 0; }, "k_scales slot"},
    {"ComputedScaleOfTheOtherType", quantised("kv_dtype: e4m3, scales: per_token"),
     [](OpParams& op) {
       after_launch(op, [](KvAppendParams&, int64_t, float& scale) { scale *= 448.0f / 127.0f; });
     },
     "k_scales slot"},
    {"ComputedScaleBarelyOff", quantised("kv_dtype: e4m3, scales: per_token"),
     [](OpParams& op) {
       after_launch(op, [](KvAppendParams&, int64_t, float& scale) { scale *= 1.0f + 0x1p-21f; });
     },
     "k_scales slot"},
    {"ComputedScaleNotWritten", quantised("kv_dtype: int8, scales: per_token"),
     [](OpParams& op) { after_launch(op, [](KvAppendParams&, int64_t, float& scale) { scale = NAN; }); },
     "k_scales slot"},
    {"ComputedScaleWrittenElsewhere", quantised("kv_dtype: int8_k, scales: per_token"),
     [](OpParams& op) {
       after_launch(op, [](KvAppendParams&, int64_t, float& scale) { (&scale)[-3] = 1.0f; });
     },
     "k_scales slot"},
    {"OneElementOneStepOff", quantised("kv_dtype: int8, scales: per_token"),
     [](OpParams& op) {
       after_launch(
           op, [](KvAppendParams& p, int64_t row, float&) { static_cast<int8_t*>(p.k_cache)[row + 5] ^= 1; });
     },
     "head 0 channel 5"},
    {"QuantisedBeforeItWasRotated", quantised("kv_dtype: e4m3, scales: per_token, rotary: neox"),
     [](OpParams& p) { p.kv_append.features &= ~uint64_t{kRotary}; }, "k_scales slot"},
    {"TablesSlightlyOff", quantised("kv_dtype: int8, rotary: interleaved"),
     [](OpParams& p) { bend_tables(p.kv_append.rotary); }, "appended"},
};

std::string in_call(const std::string& keys) {
  return "{append: in_call, heads: 4/2, head_dim: 32, batch: q3s40_q0s9_q20s33_q1s70, " + keys + "}";
}

const std::vector<Fault> kInCallFaults = {
    {"AppendIgnored", in_call("kv: paged, mask: causal"),
     [](OpParams& p) { p.attention.features &= ~uint64_t{kAppend}; }, "expected a finite number"},
    {"AppendIgnoredContiguous", in_call("kv: contiguous, leftpad: 4"),
     [](OpParams& p) { p.attention.features &= ~uint64_t{kAppend}; }, "expected a finite number"},
    {"RotaryIgnored", in_call("kv: paged, mask: causal, rotary: neox"),
     [](OpParams& p) { p.attention.features &= ~uint64_t{kRotary}; }, "seq"},
    {"PairsForHalves", in_call("kv: contiguous, mask: causal, rotary: neox"),
     [](OpParams& p) { p.attention.rotary.interleaved = 1; }, "seq"},
    {"TablesSlightlyOff", in_call("kv: contiguous, leftpad: 3, rotary: interleaved, dtype: fp16"),
     [](OpParams& p) { bend_tables(p.attention.rotary); }, "seq"},
    {"KeysAndValuesSwapped", in_call("kv: paged, kv_layout: hnd, mask: causal"),
     [](OpParams& p) { std::swap(p.attention.k_new, p.attention.v_new); }, "seq"},
    {"OneNewTokenForMany", in_call("kv: paged, new_tokens: 5"),
     [](OpParams& p) {
       static std::vector<int32_t> cu;
       cu.assign(p.attention.cu_seqlens_new, p.attention.cu_seqlens_new + p.attention.batch + 1);
       for (std::size_t b = 1; b < cu.size(); ++b) cu[b] = cu[b - 1] + 1;
       p.attention.cu_seqlens_new = cu.data();
     },
     "expected a finite number"},
    {"WritesIntoThePadding", in_call("kv: contiguous, leftpad: 4, cache_batch_idx: identity"),
     [](OpParams& p) { static_cast<uint16_t*>(p.attention.v_cache)[0] = 0; },
     "v_cache slot 0 head 0 channel 0"},
    {"WritesIntoThePaddingOfPages", in_call("kv: paged, leftpad: 4, page_layout: contiguous"),
     [](OpParams& p) { static_cast<uint16_t*>(p.attention.v_cache)[0] = 0; },
     "v_cache slot 0 head 0 channel 0"},
    {"QueriesOnTheDiagonal",
     in_call("kv: paged, mask: causal, rotary: neox, new_tokens: 2, rotary_q: from_cache_seqlens"),
     [](OpParams& p) {
       p.attention.features &= ~uint64_t{kRotaryQ};
       p.attention.rotary.q_position = RotaryQ::kDiagonal;
     },
     "seq"},
    {"QueriesCountFromWhereAllStand", in_call("kv: contiguous, rotary: neox, rotary_q: at_cache_seqlens"),
     [](OpParams& p) { p.attention.rotary.q_position = RotaryQ::kFromCacheSeqlens; }, "seq"},
    {"QueriesNotRotated", in_call("kv: paged, mask: causal, rotary: neox, dtype: fp32"),
     [](OpParams& p) {
       // A first launch writes the new rows. The second launch then only turns queries.
       KernelMessage m{};
       LaunchContext c{};
       c.num_threads = 1;
       cpu_kernel(Op::kAttention).launch(&p, &c, &m);
       p.attention.features &= ~uint64_t{kAppend | kRotary};
     },
     "seq"},
};
INSTANTIATE_TEST_SUITE_P(InCall, Append, ::testing::ValuesIn(kInCallFaults),
                         [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(Cached, Append, ::testing::ValuesIn(kCachedFaults),
                         [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(Queries, Append, ::testing::ValuesIn(kQueryFaults),
                         [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(Quantised, Append, ::testing::ValuesIn(kQuantisedFaults),
                         [](const auto& p) { return p.param.name; });

INSTANTIATE_TEST_SUITE_P(Kv, Append, ::testing::ValuesIn(kKvAppendFaults),
                         [](const auto& p) { return p.param.name; });

TEST(Append, TimedLaunchesWriteTheSameRowsAgain) {
  for (const char* mapping :
       {"{append: in_call, kv: paged, heads: 2, head_dim: 16, mask: causal, rotary: neox, batch: q3s20_q1s9}",
        "{append: in_call, kv: contiguous, heads: 2, head_dim: 16, new_tokens: 4, batch: q3s20_q1s9}"}) {
    const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
    const auto device = open_device("cpu", 2);
    SessionOptions options;
    options.timing.min_time_s = 0.001;
    bool lost = false;
    const Record r = run_item({&cases.at(0), &cpu_kernel(Op::kAttention)}, *device, options, lost);
    EXPECT_NE(r.status, Status::kFail) << r.reason;
    EXPECT_TRUE(r.check && r.check->pass);
    EXPECT_TRUE(r.time.has_value());
  }
}

TEST(Append, TimedLaunchesReturnQueriesOfChangedSigns) {
  for (const char* mapping : {"query_out: same, rotary: neox", "query_out: e4m3, kv_dtype: e4m3"}) {
    const std::vector<Case> cases = expand(parse_inline_case(with_queries(mapping))).cases;
    const auto device = open_device("cpu", 2);
    SessionOptions options;
    options.timing.min_time_s = 0.001;
    bool lost = false;
    const Record r = run_item({&cases.at(0), &cpu_kernel(Op::kKvAppend)}, *device, options, lost);
    EXPECT_NE(r.status, Status::kFail) << r.reason;
    EXPECT_TRUE(r.check && r.check->pass);
    EXPECT_TRUE(r.time.has_value()) << r.reason;
  }
}

}  // namespace
}  // namespace attnbench
