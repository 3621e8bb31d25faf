// Which cases a kernel is spared that says what it serves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "harness/cases/case.h"
#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/served.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

/// The reason of the skip; empty if the kernel gets the case.
std::string why(uint32_t flags, const std::string& mapping, bool padded = false) {
  const Case c = expand(parse_inline_case(mapping, {}, {})).cases.at(0);
  Kernel kernel{};
  kernel.name = "k";
  kernel.flags = flags;
  const auto skip = not_served(kernel, c, padded);
  return skip ? skip->text : "";
}

TEST(Served, EachFlagSparesItsCasesAndNoOther) {
  const std::string
      decode = "{batch: q1s9_q1s1}",
      prompts = "{batch: q9_q1}", chunks = "{batch: q3s9_q1s1}", idle = "{batch: q1s9_q0s9}",
      none = "{batch: 0q0}", keyless = "{batch: q1s9_q1s0}",
      short_kv = "{batch: q1s9_q3s2, allow_short_kv: true, mask: none}",
      hidden = "{batch: q2s9_q3s2, allow_short_kv: true, mask: causal}",
      listed = "{batch: q1s9, topk: 4, topk_length: zero}", masked = "{batch: 3q1s9, custom_mask: random}",
      cascade = "{batch: 2q1s90, kv: paged, path: cascade, page_layout: shared_prefix, shared_prefix: 32}";
  struct Row {
    uint32_t flags;
    std::string mapping, reason;
  };
  const Row rows[] = {
      {kServesDecode, decode, ""},
      {kServesDecode, chunks,
       "k: serves decode: one query per sequence required, given 3 queries of 9 keys (sequence 0)"},
      {kServesDecode, "{batch: q1s9_q2s9}", "given 2 queries of 9 keys (sequence 1)"},
      {kServesDecode, idle, "k: sequences with queries required; sequence 1 has none"},
      {kServesDecode, none, "k: sequences with queries required, given an empty batch"},
      {kServesDecode, keyless, "k: rows with keys required; sequence 1 pos 0 has none"},
      {kServesDecode, listed, "k: rows with keys required; sequence 0 pos 0 has none"},
      {kServesDecode, cascade, "k: path cascade divides the keys"},
      {kServesPrefill, prompts, ""},
      {kServesPrefill, decode, "as many queries as keys required, given 1 queries of 9 keys (sequence 0)"},
      {kServesPrefill | kServesDecode, decode, ""},
      {kServesPrefill | kServesDecode, chunks,
       "serves decode, prefill: one query per sequence or as many queries as keys"},
      {kServesAppend, chunks, ""},
      {kServesAppend, prompts, ""},
      {kServesAppend, short_kv, "no more queries than keys required, given 3 queries of 2 keys (sequence 1)"},
      {kNoEmptyRows, idle, ""},
      {kNoEmptyRows, short_kv, ""},
      {kNoEmptyRows, hidden, "sequence 1 pos 0 has none"},
      {kNoEmptyRows, keyless, "sequence 1 pos 0 has none"},
      {kNoEmptyRows, masked, ""},
      {kNoIdleSequences, keyless, ""},
      {kNoIdleSequences, idle, "sequence 1 has none"},
      {kNoShortKv, keyless, "given 1 queries of 0 keys (sequence 1)"},
      {kNoShortKv, idle, ""},
      {kFinitePadding | kDenseInputs, cascade, ""}};
  for (const Row& r : rows) {
    if (r.reason.empty())
      EXPECT_EQ(why(r.flags, r.mapping), "") << r.flags << r.mapping;
    else
      EXPECT_THAT(why(r.flags, r.mapping), HasSubstr(r.reason)) << r.flags << r.mapping;
  }
  for (const std::string& any :
       {decode, prompts, chunks, idle, none, keyless, short_kv, hidden, listed, masked, cascade})
    EXPECT_EQ(why(kDeterministic | kHostLengths, any), "") << any;
}

TEST(Served, MergesNeedStatesAndDenseInputsHaveNoGaps) {
  const std::string full = "{op: merge_states, batch: q9, states: 2, empty_states: 0}",
                    empty = "{op: merge_states, batch: q9, states: 2, empty_states: 1, partial_lse: dense}",
                    dense = "{op: merge_states, batch: q9, states: 2, empty_states: 0, partial_lse: dense}";
  EXPECT_EQ(why(kNoEmptyRows, full), "");
  EXPECT_EQ(why(kNoEmptyRows, empty), "k: rows with states required; row 0 head 0 has none");
  EXPECT_EQ(why(kDenseInputs, full), "k: partial_lse: dense required, given strided");
  EXPECT_EQ(why(kDenseInputs, dense), "");
  EXPECT_THAT(why(kDenseInputs, dense, true),
              HasSubstr("dense inputs required, given gaps between rows and heads"));
  EXPECT_THAT(why(kDenseInputs, "{batch: q9}", true), HasSubstr("dense inputs required"));
  EXPECT_EQ(why(kServesDecode, "{batch: q1s9}", true), "");
}

TEST(Served, SmokeHasManyCasesForAKernelThatOnlyDecodes) {
  Kernel kernel{};
  kernel.name = "k";
  kernel.flags = kServesDecode;
  std::map<std::pair<bool, int32_t>, int> counts;  // (one query head per KV head, block_size)
  int all = 0;
  for (const Case& c : expand(load_sweep_file(ATTNBENCH_SOURCE_DIR "/configs/smoke.yaml")).cases) {
    const CaseParams& p = c.params;
    if (p.op != Op::kAttention || (features_of(p) & ~(kPagedKv | kBf16)) != 0) continue;
    if (not_served(kernel, c, false)) continue;
    ++all;
    ++counts[{p.num_heads_q == p.num_heads_kv, p.block_size}];
  }
  EXPECT_GE(all, 120);
  for (const int32_t page : {16, 32, 64, 128}) {
    for (const bool mha : {false, true}) EXPECT_GE((counts[{mha, page}]), 10) << page << mha;
  }
}

}  // namespace
}  // namespace attnbench
